// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// gpusMachine is a machine whose NVML is tests/fakenvml.
type gpusMachine struct {
	dir, inventory string
}

func newGPUsMachine(t *testing.T, inventory string) *gpusMachine {
	t.Helper()
	m := &gpusMachine{dir: t.TempDir()}
	m.inventory = m.write(t, "inventory", inventory)
	return m
}

func (m *gpusMachine) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// themis runs `themis gpus`, which finds the library as the loader does.
func (m *gpusMachine) themis(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	library := filepath.Join(filepath.Dir(themisBinary()), "../fakenvml")
	if _, err := os.Stat(filepath.Join(library, "libnvidia-ml.so.1")); err != nil {
		t.Fatal(err)
	}
	return runGPUs(t, []string{"LD_LIBRARY_PATH=" + library, "FAKE_NVML=" + m.inventory, "SLURM_CONF=" + m.dir + "/slurm.conf"}, args...)
}

func runGPUs(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(themisBinary(), append([]string{"gpus"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}

// TestGPUInventories plays the inventories of core/gpu through the library that go-nvml loads:
// what does not depend on this machine's own files comes out the same.
func TestGPUInventories(t *testing.T) {
	datadriven.Walk(t, "../core/gpu/testdata", func(t *testing.T, path string) {
		var m *gpusMachine
		var limit []string
		failed := false // the reading as a whole
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "machine":
				if d.HasArg("server") {
					return d.Expected // go-nvml's own mock
				}
				m, limit = newGPUsMachine(t, d.Input), nil
				var bound string
				if d.MaybeScanArgs(t, "limit", &bound); bound != "" {
					limit = []string{"--limit", bound}
				}
				failed = strings.HasPrefix(d.Expected, "error")
				if code, _, _ := m.themis(t, limit...); (code != 0) != failed {
					t.Errorf("%s: exit code %d", d.Pos, code)
				}
			case "node-resources", "node-attributes":
				if m != nil && !failed {
					_, out, _ := m.themis(t, "--"+d.Cmd)
					return out
				}
			case "check":
				if m == nil {
					break
				}
				args := append([]string{"--check"}, limit...)
				var files string
				if d.MaybeScanArgs(t, "files", &files); files != "" {
					args = append(args, "--gres-file", m.write(t, "gres.conf", "Name=gpu File="+files+"\n"))
				}
				code, out, _ := m.themis(t, args...)
				state, _, _ := strings.Cut(out, "\n")
				if want := map[string]int{"healthy": 0, "broken": 6, "transient": 7}[state]; code != want {
					t.Errorf("%s: exit code %d, want %d", d.Pos, code, want)
				}
				return out
			}
			return d.Expected
		})
	})
}

// TestGPULinesInSlurm has slurmd read the lines that --gres-conf prints, MIG
// instances included, with files that are here.
func TestGPULinesInSlurm(t *testing.T) {
	m := newGPUsMachine(t, twoGPUs)
	_, lines, _ := m.themis(t, "--gres-conf")
	lines += "Name=gpu Type=a100_1g.5gb.me MultipleFiles=/dev/nvidia2,/dev/nvidia-cap12 Links=0,0,-1\n"
	lines = strings.NewReplacer("/dev/", m.dir+"/", "Links=-1,12", "Links=-1,12,0", "Links=12,-1", "Links=12,-1,0").Replace(lines)
	for _, name := range []string{"nvidia0", "nvidia1", "nvidia2", "nvidia-cap12"} {
		if err := os.Symlink(os.DevNull, filepath.Join(m.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	m.write(t, "gres.conf", lines)
	conf := m.write(t, "slurm.conf", "ClusterName=c\nSlurmctldHost=localhost\nGresTypes=gpu\nSlurmdSpoolDir="+m.dir+"\nProctrackType=proctrack/linuxproc\nNodeName="+host+
		" CPUs=1 Gres=gpu:a100:2,gpu:a100_1g.5gb.me:1\nPartitionName=p Nodes=ALL\n")
	out, err := exec.Command("/usr/sbin/slurmd", "-f", conf, "-G").CombinedOutput()
	for _, want := range []string{"Type=a100 Count=1 Index=0", "/nvidia1 Links=12,-1,0", "Type=a100_1g.5gb.me Count=1"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("slurmd -G: %v, want %q in\n%s", err, want, out)
		}
	}
}

const twoGPUs = "gpus 2\n0-1 name NVIDIA A100-SXM4-40GB\n0-1 memory 40960\n0-1 nvlink 0-11 switch\n0-1 ecc on\n0-1 uncorrected 0\n0-1 processes 3\n"

// TestGPUs runs the command with a machine that is well, one with a lost GPU, one
// that fails every call, one that hangs, and one without NVML.
func TestGPUs(t *testing.T) {
	well := newGPUsMachine(t, twoGPUs)
	if code, out, said := well.themis(t); code != 0 || said != "" || !strings.Contains(out, "2 a100; driver 550.54.15") || !strings.Contains(out, "slot 0: GPUs 0-1 (nvswitch)") {
		t.Errorf("exit code %d\n%s%s", code, out, said)
	}
	code, out, _ := well.themis(t, "--json")
	var m struct {
		GPUs []struct {
			Memory    int `json:"memory_mib"`
			Processes int
		}
	}
	if err := json.Unmarshal([]byte(out), &m); code != 0 || err != nil || len(m.GPUs) != 2 || m.GPUs[1].Memory != 40960 || m.GPUs[1].Processes != 3 {
		t.Errorf("--json: exit code %d, %v\n%s", code, err, out)
	}
	const lines = "Name=gpu Type=a100 File=/dev/nvidia0 Links=-1,12\nName=gpu Type=a100 File=/dev/nvidia1 Links=12,-1\n"
	if code, out, said := well.themis(t, "--gres-conf"); code != 0 || out != lines || !strings.Contains(said, "not compared") {
		t.Errorf("--gres-conf: exit code %d\n%s%s", code, out, said)
	}
	well.write(t, "gres.conf", lines) // beside $SLURM_CONF
	if code, _, said := well.themis(t, "--gres-conf"); code != 0 || said != "" {
		t.Errorf("the same gres.conf: exit code %d\n%s", code, said)
	}
	other := well.write(t, "other.conf", "Name=gpu Type=v100 File=/dev/nvidia[0-2]\n")
	if code, out, said := well.themis(t, "--gres-conf", "--gres-file", other); code != 8 || out != lines ||
		!strings.Contains(said, "/dev/nvidia0: it has Type=v100, the machine a100") || !strings.Contains(said, "/dev/nvidia2 is in it, but not on the machine") {
		t.Errorf("another gres.conf: exit code %d\n%s%s", code, out, said)
	}
	if code, out, _ := well.themis(t, "--check", "--yarn"); code != 0 || strings.Contains(out, "ERROR") {
		t.Errorf("--check --yarn: exit code %d\n%s", code, out)
	}

	for name, c := range map[string]struct {
		trouble    string
		code       int
		first, why string
	}{
		"lost":       {"1 handle lost\n", 0, "ERROR GPU 1: lost", ""},
		"every call": {"1 every unknown\n", 0, "ERROR GPU 1: every call fails", ""},
		"hang":       {"1 call nvmlDeviceGetMemoryInfo hang\n", 7, "transient", "themis: GPU 1: nvmlDeviceGetMemoryInfo did not return"},
	} {
		start := time.Now()
		code, out, said := newGPUsMachine(t, twoGPUs+c.trouble).themis(t, "--check", "--yarn", "--limit", "2s")
		if code != c.code || !strings.HasPrefix(out, c.first) || !strings.HasPrefix(said, c.why) || strings.Count(said, "\n") != min(c.code, 1) {
			t.Errorf("%s: exit code %d, want %d\n%s%s", name, code, c.code, out, said)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
	hang := newGPUsMachine(t, twoGPUs+"0 call nvmlDeviceGetName hang\n")
	if code, out, said := hang.themis(t, "--limit", "1s"); code != 7 || out != "" || !strings.HasPrefix(said, "themis: GPU 0: nvmlDeviceGetName did not return") {
		t.Errorf("a hang without --check: exit code %d\n%s%s", code, out, said)
	}

	start := time.Now()
	stuck := newGPUsMachine(t, twoGPUs+"1 call nvmlDeviceGetName stop\n")
	if code, out, said := stuck.themis(t, "--check", "--yarn", "--limit", "1s"); code != 7 || out != "" || !strings.HasPrefix(said, "themis: NVML did not return within 1s, and the process") {
		t.Errorf("a process that cannot end: exit code %d\n%s%s", code, out, said)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("a process that cannot end: took %v", took)
	}

	for name, env := range map[string][]string{"no library": {"LD_LIBRARY_PATH="}, "no driver": {"FAKE_NVML=/nonexistent"}} {
		library := "--library=" + filepath.Join(filepath.Dir(themisBinary()), "../fakenvml/libnvidia-ml.so.1")
		if name == "no library" {
			library = "--library=libnvidia-ml-nonexistent.so.1"
		}
		for _, args := range []string{"", "--check", "--gres-conf", "--json"} {
			code, out, said := runGPUs(t, env, append(strings.Fields(args), library)...)
			if code != 5 || out != "" || !strings.HasPrefix(said, "themis: no NVML: ") {
				t.Errorf("%s %s: exit code %d\n%s%s", name, args, code, out, said)
			}
		}
	}
	if code, _, said := well.themis(t, "--check", "--gres-conf"); code != 2 || said == "" {
		t.Errorf("--check --gres-conf: exit code %d", code)
	}
}
