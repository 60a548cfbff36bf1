#!/bin/sh
# Fetches Arrow's golden files and fuzzing inputs into build/golden, for the tests: export ARROW_TEST_DATA=build/golden
set -eu
cd "$(dirname "$0")/.."

source=build/arrow-testing
[ -d "$source" ] || git clone --quiet --depth 1 https://github.com/apache/arrow-testing "$source"
rm -rf build/golden
mkdir -p build/golden/fuzz/file build/golden/fuzz/stream
ln -s "../arrow-testing/data/arrow-ipc-stream/integration" build/golden/integration
for kind in file stream; do
    find "$PWD/$source/data/arrow-ipc-$kind" -maxdepth 1 -type f -exec ln -s {} "build/golden/fuzz/$kind/" \;
done
