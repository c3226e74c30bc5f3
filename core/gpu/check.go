// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"errors"
	"fmt"
	"strings"
)

// State is how well a machine's GPUs are.
type State int

// States, the worst last.
const (
	Healthy   State = iota
	Transient       // something failed that may pass by itself
	Broken          // somebody has to reset, repair or restart something
)

func (s State) String() string { return [...]string{"healthy", "transient", "broken"}[s] }

// MarshalText writes the word.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the word.
func (s *State) UnmarshalText(text []byte) error {
	for _, known := range []State{Healthy, Transient, Broken} {
		if known.String() == string(text) {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("state %q is none of healthy, transient, broken", text)
}

// Fault is one thing that is wrong.
type Fault struct {
	GPU    int    `json:"gpu"` // index; -1: of the machine
	UUID   string `json:"uuid,omitempty"`
	File   string `json:"file,omitempty"` // the GPU's device file
	State  State  `json:"state"`
	Gone   bool   `json:"gone,omitempty"` // nothing that runs on the GPU can go on
	Reason string `json:"reason"`
}

func (f Fault) String() string {
	if f.GPU < 0 {
		return f.Reason
	}
	return fmt.Sprintf("GPU %d: %s", f.GPU, f.Reason)
}

// Verdict is what one reading says about the health of a machine.
type Verdict struct {
	State  State   `json:"state"`
	Faults []Fault `json:"faults"`
}

// Reason is all faults in one line, "" if there are none.
func (v Verdict) Reason() string {
	said := make([]string, len(v.Faults))
	for i, f := range v.Faults {
		said[i] = f.String()
	}
	return strings.Join(said, "; ")
}

// Judge judges one result of Read, by itself: it remembers nothing, so what comes and goes
// is judged anew each time. files are the GPUs' device files that should be there,
// as gres.conf has them; nil if that is not known.
//
// Broken: a GPU is lost, requires a reset or answers no call, has had uncorrectable
// ECC errors since the driver was loaded, has or had rows to remap or pages to
// retire that it could not yet, or is missing; NVML does not start. Transient: a call hangs, or
// fails on a GPU that answers others. Without NVML (ErrNoNVML) there is nothing to judge.
func Judge(m *Machine, readErr error, files []string) Verdict {
	v := Verdict{Faults: []Fault{}}
	for i := range m.GPUs {
		v.Faults = append(v.Faults, m.GPUs[i].faults()...)
	}
	var hung *Hung
	switch {
	case errors.As(readErr, &hung):
		said := *hung
		said.GPU = -1
		v.Faults = append(v.Faults, Fault{GPU: hung.GPU, State: Transient, Reason: said.Error()})
	case readErr != nil:
		v.Faults = append(v.Faults, Fault{GPU: -1, State: Broken, Reason: readErr.Error()})
	case len(m.GPUs) < len(files):
		for _, f := range missing(m, files) {
			v.Faults = append(v.Faults, Fault{GPU: -1, File: f, State: Broken, Gone: true, Reason: f + " is in gres.conf, but NVML shows no such GPU"})
		}
	}
	for _, f := range v.Faults {
		v.State = max(v.State, f.State)
	}
	return v
}

// missing is those of files that no GPU has.
func missing(m *Machine, files []string) (out []string) {
	here := map[string]bool{}
	for i := range m.GPUs {
		here[m.GPUs[i].File()] = true
	}
	for _, f := range files {
		if !here[f] {
			out = append(out, f)
		}
	}
	return out
}

// faults of one GPU. What all else follows from comes alone.
func (g *GPU) faults() (out []Fault) {
	fault := Fault{GPU: g.Index, UUID: g.UUID, File: g.File(), State: Broken}
	broken := func(format string, args ...any) {
		f := fault
		f.Reason = fmt.Sprintf(format, args...)
		out = append(out, f)
	}
	fault.Gone = true
	switch {
	case g.lost:
		broken("lost: it has fallen off the bus or is inaccessible")
		return out
	case g.reset:
		broken("it requires a reset")
		return out
	case g.Answered == 0 && len(g.CallErrors) > 0:
		broken("every call fails: %s: %s", g.CallErrors[0].Call, g.CallErrors[0].Error)
		return out
	}
	fault.Gone = false
	if e := g.ECC; e != nil && e.Volatile != nil && *e.Volatile > 0 {
		broken("%d uncorrectable ECC errors since the driver was loaded", *e.Volatile)
	}
	if r := g.Remapped; r != nil && r.Failed {
		broken("a row could not be remapped: its memory has to be replaced")
	} else if r != nil && r.Pending {
		broken("a row waits to be remapped: it needs a reset")
	}
	if g.Retiring != nil && *g.Retiring {
		broken("a page waits to be retired: it needs a reset")
	}
	if n := len(g.CallErrors); n > 0 {
		f := g.CallErrors[0]
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" (and %d more calls)", n-1)
		}
		fault.State, fault.Reason = Transient, fmt.Sprintf("%s failed: %s%s", f.Call, f.Error, more)
		out = append(out, fault)
	}
	return out
}
