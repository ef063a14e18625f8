# Two commands matter: `make demo` shows the live view, `make test` runs every check. Both work on a fresh clone with
# Python 3.11 (venv and pip) and nothing else: uv is put into .uv/, the locked packages into .venv/ and .venvs/.
PYTHON ?= python3
UV := .uv/bin/uv
export UV_PYTHON_DOWNLOADS := never
export UV_PYTHON := $(PYTHON)
# uv brings its own list of certificate authorities; behind a proxy that opens TLS only the system knows the right ones.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS ?= true
endif

.PHONY: demo docs test test-unit test-nightly bench soak packages proto release publishable

demo: $(UV)  ## the live view of an embedded, simulated TPU; q ends it
	@$(UV) run --quiet --locked --no-default-groups tpumon --level 2 --simulate v5e-8

docs: $(UV)  ## the documentation as a site, in site/; fails if a link is broken
	@UV_PROJECT_ENVIRONMENT=.venvs/docs $(UV) sync --quiet --locked --no-install-project --only-group docs
	@scripts/site .venvs/docs/bin/zensical .site
	@rm -rf site && mv .site/site site

test:  ## everything that CI checks
	@scripts/test

test-unit:  ## no process, no socket
	@scripts/test unit

test-nightly:  ## what takes hours: whole days, every version of JAX and Python, servers of several years, made-up input, a soak
	@scripts/test nightly

bench:  ## speed and memory, printed
	@scripts/test bench

soak:  ## a simulated day of 64 workers with faults, in 55 minutes: is memory flat, is every figure true
	@scripts/test bench soak --day

packages:  ## the wheel and the sdist on every supported Python, with newest and oldest dependencies
	@scripts/test bench packages

release: $(UV)  ## dist/: all that goes out, from the last commit; the wheel is tried where nothing else is installed
	@$(PYTHON) scripts/release.py

publishable:  ## fails, with the reasons, while the last commit may not go out
	@$(PYTHON) scripts/release.py publishable

generated:  ## pages, schemas, screens, rules and dashboards that are made from the code; in .venv/, which `make test` makes
	@PYTHONPATH=tests .venv/bin/python scripts/schemas.py
	@.venv/bin/python scripts/reference_docs.py
	@.venv/bin/python scripts/screens.py docs/screens
	@.venv/bin/python -m grafana.generate

proto: $(UV)  ## tpumon/proto/*_pb2.py from the .proto files
	@$(UV) run --quiet --locked python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. tpumon/proto/*.proto

$(UV):
	@echo "putting uv into .uv/ ..." >&2
	@$(PYTHON) -m venv .uv && .uv/bin/pip install --quiet --disable-pip-version-check uv==0.13.8
