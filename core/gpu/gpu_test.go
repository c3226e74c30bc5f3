// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/cockroachdb/datadriven"
)

// TestInventories plays testdata: machines, and what is made of them. Rewrite the
// expected output with -rewrite.
//
//	machine [server=dgxa100] [limit=50ms]   reads the inventory in its input
//	table
//	gres                                    the lines of gres.conf
//	compare                                 a gres.conf on host n1 with the machine
//	node-resources, node-attributes
//	check [files=/dev/nvidia[0-7]]
//	json gpu=N
func TestInventories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var m *Machine
		var readErr error
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "machine":
				var base, limit string
				d.MaybeScanArgs(t, "server", &base)
				d.MaybeScanArgs(t, "limit", &limit)
				v, err := newInventory(base, d.Input)
				if err != nil {
					t.Fatal(err)
				}
				bound := DefaultLimit
				if limit != "" {
					if bound, err = time.ParseDuration(limit); err != nil {
						t.Fatal(err)
					}
				}
				if m, readErr = Read(v.lib, v.root, bound); readErr != nil {
					return "error: " + readErr.Error() + "\n"
				}
				return ""
			case "table":
				var b strings.Builder
				m.Print(&b)
				return strings.ReplaceAll(b.String(), "\n\n", "\n")
			case "gres":
				lines, notes := GresLines(m)
				var b strings.Builder
				for _, n := range notes {
					fmt.Fprintln(&b, "# "+n)
				}
				for _, l := range lines {
					fmt.Fprintln(&b, l)
				}
				return b.String()
			case "compare":
				f, err := ParseGres(d.Input, "n1")
				if err != nil {
					return err.Error() + "\n"
				}
				lines, _ := GresLines(m)
				return strings.Join(f.Differences(lines), "\n") + "\n"
			case "node-resources":
				return NodeResources(m)
			case "node-attributes":
				return NodeAttributes(m)
			case "check":
				var list string
				d.MaybeScanArgs(t, "files", &list)
				files, err := expand(list)
				if err != nil {
					t.Fatal(err)
				}
				v := Judge(m, readErr, files)
				out := v.State.String() + "\n"
				for _, f := range v.Faults {
					out += fmt.Sprintf("%s: %s\n", f.State, f)
				}
				return out
			case "json":
				var i int
				d.ScanArgs(t, "gpu", &i)
				raw, err := json.MarshalIndent(m.GPUs[i], "", " ")
				if err != nil {
					t.Fatal(err)
				}
				return string(raw) + "\n"
			}
			t.Fatalf("no command %q", d.Cmd)
			return ""
		})
	})
}

func TestTypeOf(t *testing.T) {
	for model, want := range map[string]string{
		"NVIDIA A100-SXM4-40GB": "a100", "NVIDIA A100 80GB PCIe": "a100", "Mock NVIDIA A100-SXM4-40GB": "a100",
		"Tesla V100-SXM2-16GB": "v100", "Tesla T4": "t4", "NVIDIA H100 80GB HBM3": "h100", "NVIDIA GH200 480GB": "gh200", "NVIDIA L40S": "l40s",
		"NVIDIA B200 180GB HBM3e": "b200", "NVIDIA RTX A6000": "a6000", "NVIDIA GeForce RTX 3090": "rtx3090", "NVIDIA GeForce GTX 1080 Ti": "gtx1080ti",
		"NVIDIA RTX 6000 Ada Generation": "rtx6000ada", "Quadro RTX 8000": "rtx8000", "NVIDIA TITAN V": "titanv", "": "",
	} {
		if got := TypeOf(model); got != want {
			t.Errorf("%q: got %q, want %q", model, got, want)
		}
	}
}

// TestCores: Slurm numbers cores by socket and NUMA node, the kernel often by turns.
func TestCores(t *testing.T) {
	var byTurns []cpu
	for id := range 8 {
		byTurns = append(byTurns, cpu{id: id, socket: id % 2, node: id % 2, first: id})
	}
	root := fstest.MapFS{}
	sockets(root, 2, 4, 2)
	withoutNodes := slices.Clone(byTurns)
	for i := range withoutNodes {
		withoutNodes[i].node = -1
	}
	for _, c := range []struct {
		topology  []cpu
		set, want []int
	}{
		{byTurns, []int{0, 2, 4, 6}, []int{0, 1, 2, 3}},
		{byTurns, []int{1, 3, 5, 7}, []int{4, 5, 6, 7}},
		{[]cpu{{id: 0, first: 0}, {id: 1, node: 1, first: 1}, {id: 2, first: 2}, {id: 3, node: 1, first: 3}}, []int{1, 3}, []int{2, 3}},
		{withoutNodes, []int{1, 3, 5, 7}, []int{4, 5, 6, 7}},
		{readCPUs(root), []int{4, 5, 12}, []int{4, 5}},
		{readCPUs(root), []int{0, 8, 99}, []int{0}},
		{nil, []int{0}, nil},
	} {
		if got := cores(c.topology, c.set); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.set, got, c.want)
		}
	}
}

// TestMissingSymbol: a function that an old library lacks is never called, and is
// no fault.
func TestMissingSymbol(t *testing.T) {
	v, err := newInventory("", "gpus 1\n0 call nvmlDeviceGetRemappedRows unknown")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Read(v.lib, v.root, DefaultLimit)
	if got := Judge(m, err, nil).State; got != Transient {
		t.Fatalf("with the function: %v, want transient", got)
	}
	m, err = Read(without{v.lib, "nvmlDeviceGetRemappedRows"}, v.root, DefaultLimit)
	if got := Judge(m, err, nil); got.State != Healthy {
		t.Errorf("without it: %v", got)
	}
}

// TestReadReturns: the caller has its answer when time is up, and errors that say
// what they are.
func TestReadReturns(t *testing.T) {
	v, err := newInventory("", "gpus 3\n1 call nvmlDeviceGetUUID hang")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	m, err := Read(v.lib, v.root, 20*time.Millisecond)
	var hung *Hung
	if !errors.As(err, &hung) || hung.GPU != 1 || hung.Call != "nvmlDeviceGetUUID" || len(m.GPUs) != 1 {
		t.Errorf("got %v with %d GPUs", err, len(m.GPUs))
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func FuzzParseGres(f *testing.F) {
	f.Add("Name=gpu Type=a100 File=/dev/nvidia[0-3,7] Cores=0-15 Links=-1,0\nNodeName=n[01-10] Name=gpu File=/dev/nvidia0 \\\n Cores=1")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := ParseGres(text, "n1")
		if err != nil {
			return
		}
		for _, l := range g.Lines {
			_ = l.String()
		}
		g.Files()
		g.Differences([]GresLine{{Files: []string{"/dev/nvidia0"}}})
	})
}

// without is a library that lacks one symbol.
type without struct {
	nvml.Interface
	symbol string
}

func (w without) Extensions() nvml.ExtendedInterface {
	return lacking{w.Interface.Extensions(), w.symbol}
}

type lacking struct {
	nvml.ExtendedInterface
	symbol string
}

func (l lacking) LookupSymbol(name string) error {
	if name == l.symbol {
		return errors.New("not found")
	}
	return nil
}
