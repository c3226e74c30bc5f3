// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"slices"
	"testing"
)

// TestHealth plays checks of a node: h healthy, t transient, b broken; what follows is d for a
// drain, u for an undrain, - for nothing. A before a check: an admin drains; a: adds to the
// reason; R: resumes the node; F: what was remembered is lost.
func TestHealth(t *testing.T) {
	for _, c := range []struct{ checks, want string }{
		{"hhh", "---"},
		{"hbbbhhhh", "-d----u-"},   // drained once, and back after three
		{"hbhhbhhh", "-d-----u"},   // three in a row
		{"htthtthtt", "---------"}, // what passes is not acted upon
		{"htttthhh", "---d---u"},   // what stays is
		{"tb", "-d"},               // a broken GPU needs no second look
		{"hbAhhhh", "-d--u-"},      // who drains what is drained changes nothing
		{"hAbbhhhh", "-------"},    // an admin's drain stays an admin's
		{"hbahhhhhh", "-d------"},  // and so does a reason that was changed
		{"hbRbhhh", "-dd--u"},      // resumed, and broken as ever
		{"hbRhAhhh", "-d----"},     // ours no more
		{"hbFhhhh", "-d--u-"},      // what we drained shows by its reason
		{"hbaFhhhh", "-d----"},     // a changed reason is nobody's that was forgotten
	} {
		var h Health
		n, got := SlurmNode{State: "IDLE"}, ""
		for _, e := range c.checks {
			v := Verdict{}
			switch e {
			case 'A':
				if !n.Drained() {
					n = SlurmNode{State: "IDLE+DRAIN", Reason: "to be cleaned"}
				}
				continue
			case 'a':
				n.Reason += " (ticket 17)"
				continue
			case 'R':
				n = SlurmNode{State: "IDLE"}
				continue
			case 'F':
				h = Health{}
				continue
			case 't':
				v = Verdict{Transient, []Fault{{GPU: 0, State: Transient, Reason: "a call failed"}}}
			case 'b':
				v = Verdict{Broken, []Fault{{GPU: 0, State: Broken, Gone: true, Reason: "lost"}}}
			}
			h.Count(&v, []Known{{UUID: "GPU-0"}})
			act := Nothing
			if h.Asks(v, Rule{3, 3}) {
				act = h.Decide(v, n, Rule{3, 3})
			}
			switch act {
			case Drain:
				n = SlurmNode{State: "IDLE+DRAIN", Reason: h.Reason(v)}
			case Undrain:
				n = SlurmNode{State: "IDLE"}
			}
			got += [...]string{"-", "d", "u"}[act]
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.checks, got, c.want)
		}
	}
}

// TestNumbers: Slurm numbers devices by the numbers in their files' names, or by
// Links where those are given; a MIG instance's first file is its GPU.
func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		conf, file string
		want       []int
	}{
		{"Name=gpu File=/dev/nvidia[0-3]", "/dev/nvidia2", []int{2}},
		{"Name=gpu File=/dev/nvidia[2-3]\nName=gpu File=/dev/nvidia[0-1]", "/dev/nvidia2", []int{2}},
		{"Name=gpu File=/dev/nvidia[1-3]", "/dev/nvidia2", []int{1}},
		{"Name=gpu File=/dev/nvidia10\nName=gpu File=/dev/nvidia9", "/dev/nvidia10", []int{1}},
		{"Name=gpu File=/dev/nvidia0 Links=0,-1\nName=gpu File=/dev/nvidia1 Links=-1,0", "/dev/nvidia0", []int{1}},
		{"Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21,/dev/nvidia-caps/nvidia-cap22\n" +
			"Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap30,/dev/nvidia-caps/nvidia-cap31\nName=gpu File=/dev/nvidia1", "/dev/nvidia0", []int{0, 1}},
		{"Name=gpu File=/dev/nvidia[0-3]", "/dev/nvidia7", nil},
	} {
		f, err := ParseGres(c.conf, "n1")
		if err != nil {
			t.Fatalf("%s: %v", c.conf, err)
		}
		if got := f.Numbers(c.file); !slices.Equal(got, c.want) {
			t.Errorf("%s is %v, not %v, of\n%s", c.file, got, c.want, c.conf)
		}
	}
}

// TestGone: the devices on which nothing can go on; a GPU that is lost is known by
// what was remembered of it, and if it is not, that is said.
func TestGone(t *testing.T) {
	conf, err := ParseGres("Name=gpu File=/dev/nvidia[0-3]", "n1")
	if err != nil {
		t.Fatal(err)
	}
	auto := &GresFile{}
	lost := Fault{GPU: 2, State: Broken, Gone: true}
	for _, c := range []struct {
		name  string
		known []Known
		conf  *GresFile
		fault Fault
		want  []int
		ok    bool
	}{
		{"its file is remembered", []Known{{}, {}, {UUID: "GPU-2", File: "/dev/nvidia1"}}, conf, lost, []int{1}, true},
		{"never seen whole", nil, conf, lost, nil, false},
		{"another GPU stands there now", []Known{{}, {}, {UUID: "GPU-2", File: "/dev/nvidia1"}}, conf, Fault{GPU: 2, UUID: "GPU-9", State: Broken, Gone: true}, nil, false},
		{"AutoDetect", nil, auto, lost, []int{2}, true},
		{"AutoDetect, divided", []Known{{Divided: true}}, auto, lost, nil, false},
		{"its work goes on", nil, conf, Fault{GPU: 2, State: Broken}, nil, true},
	} {
		h := Health{GPUs: c.known}
		v := Verdict{Broken, []Fault{c.fault}}
		h.Count(&v, nil)
		if got, ok := h.Gone(v, c.conf); !slices.Equal(got, c.want) || ok != c.ok {
			t.Errorf("%s: %v %v, want %v %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

func TestDevicesOf(t *testing.T) {
	const detail = `JobId=7 JobName=train
   NodeList=n[1-3] BatchHost=n1
   JOB_GRES=gpu:5
     Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:a100:2(IDX:0,3)
     Nodes=n3 CPU_IDs=0 Mem=0 GRES=shard:1(IDX:0),gpu:v100:2(IDX:1-2),gpu:a100:1(IDX:5)
     Nodes=n4 CPU_IDs=0 Mem=0 GRES=
   MinCPUsNode=1`
	for node, want := range map[string][]int{"n1": {0, 3}, "n2": {0, 3}, "n3": {1, 2, 5}, "n4": nil, "n10": nil} {
		if got, err := DevicesOf(detail, node); err != nil || !slices.Equal(got, want) {
			t.Errorf("of %s: %v, %v, want %v", node, got, err, want)
		}
	}
	if _, err := DevicesOf("  Nodes=n[1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)", "n1"); err == nil {
		t.Error("a broken node list is taken")
	}
}

func TestParseNode(t *testing.T) {
	n, err := ParseNode("NodeName=n1 Arch=x86_64\n   State=MIXED+DRAIN ThreadsPerCore=1\n   Reason=themis: GPU 0: lost; undrained by itself when healthy [root@2026-12-02T10:00:00]\n")
	if want := (SlurmNode{State: "MIXED+DRAIN", Reason: "themis: GPU 0: lost; undrained by itself when healthy"}); err != nil || n != want || !n.Drained() || !n.Ours() || n.Idle() {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err = ParseNode("   State=IDLE ThreadsPerCore=1\n"); err != nil || n.Drained() || n.Ours() || !n.Idle() {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err = ParseNode("Node n9 not found"); err == nil {
		t.Error("no state, and no error")
	}
}
