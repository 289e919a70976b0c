"""Compares the accuracies of step 2; the report is metric_diff.log."""

from pathlib import Path

from reprod_log import ReprodDiffHelper

HERE = Path(__file__).resolve().parent


def main() -> None:
    helper = ReprodDiffHelper()
    torch_info = helper.load_info(str(HERE / "AlexNet_torch" / "metric_torch.npy"))
    paddle_info = helper.load_info(str(HERE / "AlexNet_paddle" / "metric_paddle.npy"))
    helper.compare_info(torch_info, paddle_info)
    helper.report(diff_method="mean", diff_threshold=1e-6, path=str(HERE / "metric_diff.log"))


if __name__ == "__main__":
    main()
