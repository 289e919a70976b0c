"""What a layer returns, in the one arrangement that all frameworks share for its kind."""

from __future__ import annotations

from typing import Any

_CELLS = ("rnn_cell", "gru_cell", "lstm_cell")


def canonical_output(kind: str, output: Any) -> Any:
    """The output of a layer of this kind as every framework's layer would return it.

    A recurrent cell gives its new state: h, or (h, c). paddle gives the output before it, (h, h) and (h, (h, c)), and
    the output is the very tensor that is the first of the state. A cell of the user's own that returns anything else
    keeps what it returns.

    An attention layer gives what it attended to. The weights that may come beside it are averaged over heads in one
    framework and not in the other, and may not be asked for at all; what is done with them shows behind them.
    """
    if kind == "multihead_attention" and isinstance(output, tuple) and output:
        return output[0]
    if kind not in _CELLS or not isinstance(output, tuple) or len(output) != 2:
        return output
    first, state = output
    again = state[0] if isinstance(state, (tuple, list)) and state else state
    return state if again is first else output
