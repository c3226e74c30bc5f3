// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"themis/bridge"
	"themis/tests/privateyarn"
)

// machines are what the NodeManagers' scripts see, played by tests/fakenvml.
type machines struct {
	*testing.T
	dir, binary, library string
}

func playMachines(t *testing.T, inventories ...string) *machines {
	t.Helper()
	dir, err := os.MkdirTemp("", "themis-machines.") // not below a folder of root's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary, bad := filepath.Abs(themisBinary())
	if err := errors.Join(bad, os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	m := &machines{t, dir, binary, filepath.Join(filepath.Dir(binary), "../fakenvml/libnvidia-ml.so.1")}
	for i, inventory := range inventories {
		m.play(i, inventory)
		m.write(m.script(i), fmt.Sprintf("#!/bin/sh\nFAKE_NVML=%s/machine%d exec %s \"$@\"\n", dir, i, binary))
	}
	return m
}

// script is one that runs themis on the machine.
func (m *machines) script(i int) string { return filepath.Join(m.dir, fmt.Sprint("themis", i)) }

// play replaces what a machine is like.
func (m *machines) play(i int, inventory string) {
	m.write(filepath.Join(m.dir, fmt.Sprint("machine", i)), inventory)
}

func (m *machines) write(path, text string) {
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o755), os.Rename(path+".new", path)); err != nil {
		m.Fatal(err)
	}
}

// TestYarnTypes: the real node-attribute script tells the ResourceManager the type of a node's GPUs,
// and applications that say speed= get the nodes on which they gain most.
func TestYarnTypes(t *testing.T) {
	machines := playMachines(t, "gpus 2\n0-1 name Tesla V100-SXM2-32GB\n", "gpus 2\n0-1 name NVIDIA A100-SXM4-40GB\n")
	opt := privateyarn.Options{GPUs: 2}
	for i := range 2 {
		opt.NodeSite = append(opt.NodeSite, map[string]string{
			"yarn.nodemanager.node-attributes.provider":             "script",
			"yarn.nodemanager.node-attributes.provider.script.path": machines.script(i),
			"yarn.nodemanager.node-attributes.provider.script.opts": "gpus,--node-attributes,--library," + machines.library,
		})
	}
	opt.Site = map[string]string{"yarn.node-attribute.fs-store.root-dir": "file://" + filepath.Join(machines.dir, "store")}
	c := startYarn(t, opt)
	likesA := submit(t, c, privateyarn.App{Containers: 2, GPUs: 1, Seconds: 15, User: "bob", Tags: []string{"themis:speed=a100:1,v100:.2"}})
	awaitEvent(t, likesA, "started", 1) // alone, it could have either
	likesV := submit(t, c, privateyarn.App{Containers: 2, GPUs: 1, Seconds: 5, Tags: []string{"themis:speed=v100:1,a100:.5"}})
	awaitEvent(t, likesV, "started", 1)
	leases := yarnLeases(t, c)
	for i, app := range []*privateyarn.Submitted{likesV, likesA} {
		if on := nodesOf(leases, app); len(on) != 1 || on[c.NodeName(i)] != 2 {
			t.Errorf("application %d has %v, want two GPUs of %s", i, on, c.NodeName(i))
		}
		if e := yarnView[bridge.Explain](t, c, "explain", app.ID); e.Types != []string{"v100", "a100"}[i] || e.Speed != 1 {
			t.Errorf("application %d is on %q at speed %g", i, e.Types, e.Speed)
		}
	}
	await(t, likesV, succeeded)
	await(t, likesA, succeeded)
}

// TestYarnGPUHealth: the health script of a real NodeManager, `themis gpus --check --yarn`, finds that
// a GPU has fallen off the bus. The ResourceManager drops the node, its lease has failed for that
// reason, and the application goes on elsewhere. The GPU comes back, and so does the node.
func TestYarnGPUHealth(t *testing.T) {
	const well = "gpus 2\n0-1 name NVIDIA A100-SXM4-40GB\n"
	machines := playMachines(t, well, well)
	opt := privateyarn.Options{GPUs: 2}
	for i := range 2 {
		opt.NodeSite = append(opt.NodeSite, map[string]string{
			"yarn.nodemanager.health-checker.script.path": machines.script(i),
			"yarn.nodemanager.health-checker.script.opts": "gpus,--check,--yarn,--library," + machines.library,
			"yarn.nodemanager.health-checker.interval-ms": "1000",
		})
	}
	c := startYarn(t, opt)
	// Another application keeps a gang of two off one node, so that it is not where its master is.
	other := submit(t, c, privateyarn.App{User: "bob", GPUs: 1, Seconds: 600})
	awaitEvent(t, other, "started", 1)
	node := 0
	if nodesOf(yarnLeases(t, c), other)[c.NodeName(0)] > 0 {
		node = 1
	}
	var app *privateyarn.Submitted
	for app == nil || app.MasterNode() == node {
		if app != nil {
			if err := app.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		app = submit(t, c, privateyarn.App{Containers: 2, GPUs: 1, Seconds: 20})
		awaitEvent(t, app, "started", 1)
	}
	machines.play(node, well+"1 handle lost\n")
	awaitEvent(t, app, "with -100", 2)
	if err := other.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, app, "got container", 4)
	if on := nodesOf(yarnLeases(t, c), app); len(on) != 1 || on[c.NodeName(1-node)] != 2 {
		t.Errorf("it goes on on %v", on)
	}
	eventually(t, func() string {
		leases := yarnView[[]bridge.Lease](t, c, "leases", "--last", "50")
		for _, l := range leases {
			if strings.HasPrefix(l.Job, app.ID) && strings.HasPrefix(l.Reason, "failed: "+c.NodeName(node)+": ERROR GPU 1: lost") {
				return ""
			}
		}
		return fmt.Sprintf("no lease of %s has failed with %s: %+v", app.ID, c.NodeName(node), leases)
	})
	machines.play(node, well)
	eventually(t, func() string {
		if st := yarnView[bridge.Status](t, c, "status"); st.GPUs != 4 {
			return fmt.Sprintf("%d GPUs once the GPU is back", st.GPUs)
		}
		return ""
	})
	await(t, app, succeeded)
}
