// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestUse plays looks at two GPUs, one a minute, told every three: "40/90 0/0" is what
// was seen of each as mean/peak, - of one that says nothing, s a gap of so many minutes.
// What is told is Slurm's number, per cent, and for how many minutes it has been idle.
func TestUse(t *testing.T) {
	conf, err := ParseGres("Name=gpu File=/dev/nvidia0 Links=0,-1\nName=gpu File=/dev/nvidia1 Links=-1,0", "n1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, looks, want string
	}{
		{"every three minutes, by Slurm's numbers", "40/90 0/0|50/80 0/0|60/70 1/9|30/90 0/0|90/90 0/0|90/90 0/0|90/90 0/0",
			"1=45% 0=0%@0|1=90% 0=0%@3"},
		{"a little work is work", "0/0 0/0|0/0 0/1|0/0 0/0|0/0 0/0", "1=0%@3 0=0%@1"},
		{"who says nothing is not told of", "- 5/5|- 5/5|- 5/5|5/5 5/5", "1=5% 0=5%"},
		{"nobody does", "- -|- -|- -|- -", ""},
		{"after a gap all is new", "0/0 0/0|0/0 0/0|10 0/0 7/7|0/0 7/7|0/0 7/7|0/0 7/7", "1=0%@3 0=7%"},
		{"another GPU is there now", "0/0 0/0|0/0 0/0|X/0 0/0|0/0 0/0", "1=0%@0 0=0%@3"},
	} {
		var u Use
		var got []string
		now := time.Unix(1_000_000, 0)
		for _, look := range strings.Split(c.looks, "|") {
			words := strings.Fields(look)
			if len(words) == 3 {
				var gap int
				fmt.Sscan(words[0], &gap)
				now, words = now.Add(time.Duration(gap)*time.Minute), words[1:]
			}
			seen := []Known{{UUID: "a", File: "/dev/nvidia0"}, {UUID: "b", File: "/dev/nvidia1"}}
			for i, w := range words {
				if strings.HasPrefix(w, "X") {
					seen[i].UUID, w = "c", strings.Replace(w, "X", "0", 1)
				}
				var l Lately
				if n, _ := fmt.Sscanf(w, "%d/%d", &l.MeanPct, &l.PeakPct); n == 2 {
					seen[i].Lately = &l
				}
			}
			u.Look(now, 3*time.Minute, seen)
			told, of := u.Tell(3*time.Minute, conf, seen)
			var line []string
			for _, g := range told {
				s := fmt.Sprintf("%d=%d%%", g.Device, g.Busy)
				if !g.Idle.IsZero() {
					s += fmt.Sprintf("@%.0f", now.Sub(g.Idle).Minutes())
				}
				line = append(line, s)
			}
			if len(line) > 0 {
				if got = append(got, strings.Join(line, " ")); of != 3*time.Minute {
					t.Errorf("%s: told of %v", c.name, of)
				}
			}
			now = now.Add(time.Minute)
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%s: got %q, want %q", c.name, s, c.want)
		}
	}
}

// TestTellUnknown: of GPUs whose numbers in Slurm are not known nothing is told.
func TestTellUnknown(t *testing.T) {
	seen := []Known{{UUID: "a", Lately: &Lately{5, 5}}, {UUID: "b", Lately: &Lately{5, 5}, Divided: true}}
	u := Use{Told: time.Unix(0, 0), Last: time.Unix(60, 0)}
	u.Look(time.Unix(120, 0), time.Minute, seen)
	if told, _ := u.Tell(time.Minute, &GresFile{}, seen); told != nil {
		t.Errorf("with AutoDetect and MIG: %+v", told)
	}
	u.Look(time.Unix(180, 0), time.Minute, seen[:1])
	if told, _ := u.Tell(time.Minute, &GresFile{}, seen[:1]); len(told) != 1 || told[0].Device != 0 {
		t.Errorf("with AutoDetect: %+v", told)
	}
}
