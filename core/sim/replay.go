// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"themis/core/arbiter"
	"themis/core/cluster"
)

// Replayed is how a recording compares with what is decided now.
type Replayed struct {
	Version    string      `json:"version"`  // of the program that recorded it
	Steps      int         `json:"steps"`    // played, up to and with the first that differs
	Grants     int         `json:"grants"`   // leases granted in them
	Reclaims   int         `json:"reclaims"` // leases whose jobs were told to leave
	Skipped    int         `json:"skipped"`  // steps of cores that went on from their ledger
	Difference *Difference `json:"difference"`
}

// Difference is the first step that came out otherwise.
type Difference struct {
	Step int       `json:"step"` // counted from 1
	Line int       `json:"line"` // of the recording
	Time time.Time `json:"time"`
	Want []string  `json:"want"` // recorded, but not decided now
	Got  []string  `json:"got"`  // decided now, but not recorded
}

// Replay shows an arbiter a live core's snapshots (serve.record in themis.toml)
// at the recorded times, under the recorded configuration, and compares each
// decision with the core's, up to the first that differs.
//
// It knows what the recording holds, not the core's ledger: steps of a core that
// went on from a ledger are skipped, and it is an error if there are no others.
// A line cut short is left out if a core was killed over it: it is the last, or
// the next core's head follows. Other errors name their line.
func Replay(r io.Reader) (*Replayed, error) {
	p := player{}
	in := bufio.NewReader(r)
	if first, err := in.Peek(1); err == nil && first[0] != '{' {
		return nil, errors.New("line 1: not a recording\nhint: serve.record in themis.toml names the file that a core records to")
	}
	for {
		raw, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, err
		}
		p.line++
		if raw = bytes.TrimSpace(raw); len(raw) > 0 {
			if err := p.play(raw); err != nil {
				return nil, fmt.Errorf("line %d: %w", p.at, err)
			}
		}
		if err == nil && p.out.Difference == nil {
			continue
		}
		switch {
		case p.out.Steps == 0 && p.out.Skipped > 0:
			return nil, errors.New("the core went on from a ledger that was not empty, which the recording does not hold\n" +
				"hint: record from a core's first start on")
		case p.out.Steps == 0:
			return nil, errors.New("no step is recorded")
		}
		return &p.out, nil
	}
}

// player is a replay under way.
type player struct {
	out       Replayed
	line, at  int   // read last; that an error is about
	cut       error // of the line before
	headed    bool
	arb       *arbiter.Arbiter // nil: its state is not known
	snap      *cluster.Snapshot
	won, lost map[uint64]bool // leases
}

// entry is a line of either kind.
type entry struct {
	arbiter.RecordHead
	arbiter.Record
}

func (p *player) play(raw []byte) error {
	var e entry
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields() // what a newer program knows matters
	err := d.Decode(&e)
	switch {
	case p.cut != nil && (err != nil || e.Config == nil):
		return p.cut
	case errors.Is(err, io.ErrUnexpectedEOF):
		p.at, p.cut = p.line, errors.New("cut short")
		return nil
	}
	p.at, p.cut = p.line, nil
	switch {
	case err != nil:
		return fmt.Errorf("%w\nhint: is it a recording, and of a program that is not newer than this one?", err)
	case d.More():
		return errors.New("more than one value")
	case e.Config != nil:
		p.head(&e.RecordHead)
		return nil
	case !p.headed:
		return errors.New("no configuration before the first step\nhint: the beginning of the recording is missing")
	case e.Time.IsZero():
		return errors.New("a step without its time")
	}
	return p.step(&e.Record)
}

func (p *player) head(h *arbiter.RecordHead) {
	p.headed, p.snap, p.arb = true, nil, nil
	p.won, p.lost = map[uint64]bool{}, map[uint64]bool{}
	if !h.Restored {
		p.arb = arbiter.Restore(*h.Config, h.Begin, arbiter.Saved{})
		p.out.Version = h.Version
	}
}

func (p *player) step(r *arbiter.Record) error {
	if p.arb == nil {
		p.out.Skipped++
		return nil
	}
	if r.Snapshot != nil {
		p.snap = r.Snapshot
	}
	if p.snap == nil {
		return errors.New("a step before the first snapshot")
	}
	decision := p.arb.Step(r.Time, p.snap)
	got := decision.Decided()
	p.out.Steps++
	for _, g := range got.Grants {
		p.count(&p.out.Grants, p.won, g.Lease)
	}
	for _, x := range got.Reclaims {
		p.count(&p.out.Reclaims, p.lost, x.Lease)
	}
	was, is := r.Lines(), got.Lines()
	if !slices.Equal(was, is) {
		p.out.Difference = &Difference{Step: p.out.Steps, Line: p.line, Time: r.Time, Want: without(was, is), Got: without(is, was)}
	}
	return nil
}

// count counts a lease once: grants and reclaims are repeated until they are heard.
func (p *player) count(n *int, seen map[uint64]bool, lease uint64) {
	if !seen[lease] {
		seen[lease] = true
		*n++
	}
}

func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}
