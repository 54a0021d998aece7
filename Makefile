# Every target works on a fresh clone: the scripts make .venv and install what they need into it.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: demo test check bench compare asan tsan valgrind arm64 soak clean

demo:  ## a DQN learns CartPole from the buffer
	scripts/venv.sh build demo
	scripts/build_python.sh
	python examples/cartpole_dqn.py

test:  ## everything: the README's C++ commands, the C++ tests under ASan+UBSan and TSan, Python tests
	scripts/venv.sh build test
	scripts/build_python.sh
	scripts/test_clone.sh
	scripts/test_cpp.sh out/asan address,undefined
	scripts/test_cpp.sh out/tsan thread
	scripts/beside.sh scripts/test_crash.sh "scripts/check_macos.sh && scripts/test_python.sh tests/model"
	REPLAY_CPP_PREFIX=$(CURDIR)/out/clone/prefix scripts/test_python.sh --ignore=tests/model

check:  ## formatting, lint and types, of Python and C++
	scripts/venv.sh build test dev
	scripts/check.sh

bench:  ## micro-benchmarks, C++ then Python
	scripts/venv.sh build demo
	scripts/build_python.sh
	scripts/bench.sh

compare:  ## the same workloads on this package and on its peers
	scripts/venv.sh build demo
	scripts/build_python.sh
	python benchmarks/compare/run.py

asan:  ## C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	scripts/venv.sh build
	scripts/test_cpp.sh out/asan address,undefined

tsan:  ## C++ tests under ThreadSanitizer
	scripts/venv.sh build
	scripts/test_cpp.sh out/tsan thread

valgrind:  ## C++ tests under valgrind
	scripts/venv.sh build
	scripts/test_valgrind.sh

arm64:  ## C++ tests compiled for arm64, under qemu-user
	scripts/venv.sh build
	scripts/test_arm64.sh

soak:  ## the tests that run for minutes
	scripts/venv.sh build test
	scripts/build_python.sh
	scripts/test_python.sh -m soak --timeout=0 -o faulthandler_timeout=0

clean:
	rm -rf build out dist .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
