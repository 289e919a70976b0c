// The page of several steps has nothing to draw: only language and light or dark change.
startPage(() => {});
