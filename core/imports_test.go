// SPDX-License-Identifier: Apache-2.0

package core

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// bans states which packages may not depend on which, and why.
var bans = []struct{ from, banned, why string }{
	{"themis/core/cluster", "themis/bridge", "core decides without knowing hosts or wires"},
	{"themis/core/fairness", "themis/bridge", "core decides without knowing hosts or wires"},
	{"themis/core/auction", "themis/bridge", "core decides without knowing hosts or wires"},
	{"themis/core/arbiter", "themis/bridge", "core decides without knowing hosts or wires"},
	{"themis/core/arbiter", "database/sql", "decisions do no I/O: the service writes the ledger"},
	{"themis/core/arbiter", "math/rand", "decisions are a function of snapshot and time"},
	{"themis/core/arbiter", "net", "decisions do no I/O"},
	{"themis/core/arbiter", "os/exec", "decisions do no I/O"},
	{"themis/core/arbiter", "log", "decisions do no I/O"},
	{"themis/core/auction", "themis/core/arbiter", "imports go service -> arbiter -> auction, fairness -> cluster"},
	{"themis/core/fairness", "themis/core/auction", "imports go service -> arbiter -> auction, fairness -> cluster"},
	{"themis/core/ledger", "themis/core/service", "imports go service -> ledger -> arbiter"},
	{"themis/core/sim", "themis/core/service", "the simulator drives the arbiter, not the service around it"},
	{"themis/core/sim", "database/sql", "a simulation leaves nothing behind"},
	{"themis/core/arbiter", "themis/core/sim", "what schedules live knows nothing that only a simulator knows"},
	{"themis/core/arbiter", "themis/core/trace", "what schedules live knows nothing that only a simulator knows"},
	{"themis/bridge", "themis/core", "the contract knows neither side"},
	{"themis/bridge", "themis/slurm", "the contract knows neither side"},
	{"themis/cgo", "themis/core", "what is loaded into a foreign daemon holds no policy, no SQLite and no NVML"},
	{"themis/bridge", "github.com/NVIDIA/go-nvml", "what is loaded into a foreign daemon holds no policy, no SQLite and no NVML"},
	{"themis/cgo", "github.com/NVIDIA/go-nvml", "what is loaded into a foreign daemon holds no policy, no SQLite and no NVML"},
	{"themis/core/arbiter", "github.com/NVIDIA/go-nvml", "decisions do no I/O: GPUs come in the snapshot"},
	{"themis/core/gpu", "themis/bridge", "a machine is read without a core"},
	{"themis/core/gpu", "themis/core/service", "a machine is read without a core"},
	{"themis/cgo", "github.com/mattn/go-sqlite3", "what is loaded into a foreign daemon holds no policy, no SQLite and no NVML"},
}

func TestImportBans(t *testing.T) {
	deps := map[string][]string{}
	for _, b := range bans {
		if deps[b.from] == nil {
			out, err := exec.Command("go", "list", "-deps", b.from).Output()
			if err != nil {
				t.Fatalf("go list %s: %v", b.from, err)
			}
			deps[b.from] = strings.Fields(string(out))
		}
		if i := slices.IndexFunc(deps[b.from], func(d string) bool { return d == b.banned || strings.HasPrefix(d, b.banned+"/") }); i >= 0 {
			t.Errorf("%s depends on %s: %s", b.from, deps[b.from][i], b.why)
		}
	}
}
