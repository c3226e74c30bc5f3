# SPDX-License-Identifier: Apache-2.0
#
# Everything that is made lands in build/. `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:
.DELETE_ON_ERROR:

# `make install` honours these; DESTDIR is for packagers.
PREFIX ?= /usr
DESTDIR ?=

BUILD := $(CURDIR)/build
VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),devel)
# Resolved when first used: install-packages may have to bring Go first.
GO = $(or $(shell etc/find-go),$(error no Go from 1.21 on; run etc/install-packages))
# A Go that is older than go.mod wants fetches that one.
export GOTOOLCHAIN ?= auto
export CGO_ENABLED := 1
# go-nvml's binding names functions that NVML calls deprecated.
export CGO_CFLAGS ?= -g -O2 -Wno-deprecated-declarations

# With a JDK, the library has the native methods that the ResourceManager calls,
# too, and the YARN half is built.
JDK = $(shell etc/find-jdk)
HADOOP_JARS := $(BUILD)/yarn/lib
SHELL_JARS := $(BUILD)/yarn/shell
HADOOP_TESTS := $(BUILD)/hadoop-suite/lib

SLURM_PLUGIN_DIR ?= $(patsubst %/,%,$(dir $(firstword $(wildcard /usr/lib/*/slurm-wlm/select_cons_tres.so /usr/lib/*/slurm/select_cons_tres.so /usr/lib64/slurm/select_cons_tres.so))))
THEMIS_DIR = $(PREFIX)/lib/themis
PLUGINS := select_themis.so priority_themis.so job_submit_themis.so libthemis_slurmctld.so

.PHONY: help prepare prepare-yarn build core shim plugins yarn demo demo-yarn test test-slurm test-hadoop bench results soak proto install install-command install-slurm install-yarn uninstall clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

prepare:
	@etc/install-packages
	@etc/fetch-slurm-source

build: prepare core shim plugins ## the themis command, the library and the Slurm plugins

# NVML's functions are found when they are first called, in what is loaded then.
core:
	@mkdir -p $(BUILD)/bin
	$(GO) build -ldflags '-X main.version=$(VERSION) -extldflags "-Wl,-z,lazy"' -o $(BUILD)/bin/themis ./core/cmd/themis
	@rm -rf $(BUILD)/man && $(BUILD)/bin/themis man $(BUILD)/man

shim:
	@mkdir -p $(BUILD)/lib
	$(if $(JDK),CGO_CFLAGS="$(CGO_CFLAGS) -I$(JDK)/include -I$(JDK)/include/linux") $(GO) build $(if $(JDK),-tags jni) \
	  -buildmode=c-shared -ldflags '-extldflags "-Wl,-z,nodelete"' -o $(BUILD)/lib/libthemis.so ./cgo

prepare-yarn:
	@etc/install-packages yarn

yarn: prepare-yarn core shim $(HADOOP_JARS)/.fetched $(SHELL_JARS)/.fetched ## the ResourceManager's themis-yarn.jar, and the daemons to test it on
	JAVA_HOME=$(JDK) mvn -B -q -f yarn/pom.xml package

# The released daemons of Hadoop, about 90 MB, and its distributed shell, once.
$(HADOOP_JARS)/.fetched: tests/privateyarn/pom.xml
$(SHELL_JARS)/.fetched: tests/privateyarn/shell.xml
%/.fetched:
	@rm -rf $*
	JAVA_HOME=$(JDK) mvn -B -q -f $< org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$*
	@touch $@

# Its tests and what they run on, about 110 MB, once.
$(HADOOP_TESTS)/.fetched: tests/hadoop-suite/pom.xml
	@rm -rf $(HADOOP_TESTS)
	JAVA_HOME=$(JDK) mvn -B -q -f $< org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DincludeScope=test -DoutputDirectory=$(HADOOP_TESTS)
	@touch $@

plugins: shim
	$(MAKE) -C slurm THEMIS_BIN=$(PREFIX)/bin/themis SLURM_SRC=$(BUILD)/slurm-src SLURM_BUILD=$(BUILD)/slurm-build OUT=$(BUILD)/lib

# A libnvidia-ml.so.1 without a GPU, for tests; it is made against go-nvml's own nvml.h.
$(BUILD)/fakenvml/libnvidia-ml.so.1: tests/fakenvml/fakenvml.c go.mod
	@mkdir -p $(@D)
	$(GO) mod download github.com/NVIDIA/go-nvml
	$(CC) -O2 -g -std=gnu11 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -isystem "$$($(GO) list -m -f '{{.Dir}}' github.com/NVIDIA/go-nvml)/pkg/nvml" \
	  -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ $<

demo: build ## a cluster of fake GPUs, some jobs, and what the auction makes of them
	$(GO) run ./tests/demo slurm

demo-yarn: yarn ## the same on YARN: a ResourceManager, three NodeManagers, gangs that deadlock without Themis
	$(GO) run ./tests/demo yarn

test: prepare-yarn build yarn $(HADOOP_TESTS)/.fetched $(BUILD)/fakenvml/libnvidia-ml.so.1 ## everything that must pass, in about half an hour
	@GO="$(GO)" tests/run-all

test-slurm: build ## Slurm's own tests on stock plugins and on ours, side by side
	tests/slurm-suite/run both

test-hadoop: yarn $(HADOOP_TESTS)/.fetched ## Hadoop's own scheduler tests on stock YARN and on ours, side by side
	tests/hadoop-suite/run both

bench: build yarn $(HADOOP_TESTS)/.fetched ## measurements, also beside other solvers; results in build/bench
	@mkdir -p $(BUILD)/bench
	$(GO) test -run xxx -bench Round -count 6 ./core/auction | tee $(BUILD)/bench/rounds.txt
	$(GO) run ./tests/bench/rounds -out $(BUILD)/bench
	$(GO) run ./tests/bench/sim -out $(BUILD)/bench
	$(GO) run ./tests/bench -out $(BUILD)/bench
	tests/bench/yarn/run | tee $(BUILD)/bench/yarn.txt

# The page is made from runs alone; it needs no build.
results: ## docs/results.md anew, from runs; TRACES=DIR is where the traces are
	@test -n "$(TRACES)" || { echo "TRACES is not set" >&2; echo "hint: make results TRACES=DIR, where DIR has themis/ and shockwave/ with the traces" >&2; exit 1; }
	$(GO) run ./tests/results -traces "$(TRACES)" -out docs/results.md

soak: build ## the long ones: 1,000 kills of the core, 20,000 random histories, fuzzing
	THEMIS_KILLS=1000 $(GO) test -tags e2e -count=1 -timeout 3h -run TestCoreKilled -v ./tests
	$(GO) test -count=1 -timeout 3h -run 'Properties|Oracle|Bound|Payments|Proofs|Monotone|Promises|SmallSteps|MaxMin|Matter|AfterItsReference' ./core/auction ./core/fairness ./core/arbiter -rapid.checks=20000
	$(GO) test -run xxx -fuzz FuzzHint -fuzztime 20m ./bridge
	$(GO) test -run xxx -fuzz FuzzConfig -fuzztime 20m ./core/service
	$(GO) test -run xxx -fuzz FuzzParseGres -fuzztime 20m ./core/gpu

proto: ## regenerate bridge/pb after a change of themis.proto
	@command -v protoc >/dev/null || { echo "protoc is not installed" >&2; exit 1; }
	protoc -I bridge --go_out=. --go_opt=module=themis --go-grpc_out=. --go-grpc_opt=module=themis themis.proto

# install does not build, so that it can run as root on what a user built. It puts
# there the half, or the halves, that were built.
install: $(if $(wildcard $(BUILD)/lib/select_themis.so),install-slurm) $(if $(wildcard $(BUILD)/lib/themis-yarn.jar),install-yarn) ## put there what was built, for Slurm, YARN or both; DESTDIR= and PREFIX=/usr as usual
	@test -n "$^" || { echo "run make build (Slurm) or make yarn (YARN) first" >&2; exit 1; }

install-command:
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/doc/themis $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 $(BUILD)/bin/themis $(DESTDIR)$(PREFIX)/bin/
	install -m 644 etc/themis.toml etc/slurm.conf.example etc/yarn-site.xml.example LICENSE LICENSES/* $(DESTDIR)$(PREFIX)/share/doc/themis/
	install -m 644 $(BUILD)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/

install-slurm: install-command
	@test -n "$(SLURM_PLUGIN_DIR)" || { echo "no Slurm here; set SLURM_PLUGIN_DIR" >&2; exit 1; }
	install -d $(DESTDIR)$(SLURM_PLUGIN_DIR) $(DESTDIR)$(THEMIS_DIR) $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 644 $(addprefix $(BUILD)/lib/,$(PLUGINS) libthemis.so) $(DESTDIR)$(SLURM_PLUGIN_DIR)/
	install -m 755 etc/gpu-health $(DESTDIR)$(THEMIS_DIR)/
	install -m 644 etc/themis.service $(DESTDIR)$(PREFIX)/lib/systemd/system/

# The jar looks for the library beside it.
install-yarn: install-command
	install -d $(DESTDIR)$(THEMIS_DIR)
	install -m 644 $(BUILD)/lib/themis-yarn.jar $(BUILD)/lib/libthemis.so $(DESTDIR)$(THEMIS_DIR)/

uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/themis
	$(if $(SLURM_PLUGIN_DIR),rm -f $(addprefix $(DESTDIR)$(SLURM_PLUGIN_DIR)/,$(PLUGINS) libthemis.so))
	rm -rf $(DESTDIR)$(THEMIS_DIR) $(DESTDIR)$(PREFIX)/share/doc/themis
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/themis.1 $(DESTDIR)$(PREFIX)/share/man/man1/themis-*.1
	rm -f $(DESTDIR)$(PREFIX)/lib/systemd/system/themis.service

clean: ## remove build/ but for Slurm's source and Hadoop's jars
	rm -rf $(BUILD)/yarn/target $(BUILD)/hadoop-suite/{stock,themis}
	find $(BUILD) -mindepth 1 -maxdepth 1 ! -name 'slurm-src' ! -name 'slurm-build' ! -name 'yarn' ! -name 'hadoop-suite' -exec rm -rf {} + 2>/dev/null || true
