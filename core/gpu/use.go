// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"math"
	"time"
)

// Use is what the checks of a Slurm node remember of how busy its GPUs were. Its zero
// value is that of a node that nobody has looked at.
type Use struct {
	Told time.Time `json:"told"` // up to when it was
	Last time.Time `json:"last"` // look
	GPUs []Load    `json:"gpus"` // by index
}

// Load is of one GPU.
type Load struct {
	UUID  string    `json:"uuid,omitempty"`
	Looks int       `json:"looks"` // since it was told
	Busy  float64   `json:"busy"`  // sum of what they saw, in per cent of time
	Idle  time.Time `json:"idle"`  // since when none saw any work; zero: the last did
}

// Told is what is told of one GPU.
type Told struct {
	Device int       // Slurm's number
	Busy   int       // per cent of time
	Idle   time.Time // see Load
}

// Look takes in a reading. every is how often it is told: what was seen much longer ago
// says nothing of the time since.
func (u *Use) Look(now time.Time, every time.Duration, seen []Known) {
	if u.Told.IsZero() || now.Sub(u.Last) > 3*every || now.Before(u.Last) {
		*u = Use{Told: now}
	}
	u.Last = now
	old := u.GPUs
	u.GPUs = make([]Load, len(seen))
	for i, k := range seen {
		g := &u.GPUs[i]
		if i < len(old) && old[i].UUID == k.UUID {
			*g = old[i]
		}
		g.UUID = k.UUID
		switch {
		case k.Lately == nil:
			*g = Load{UUID: k.UUID}
			continue
		case k.Lately.PeakPct > 0:
			g.Idle = time.Time{}
		case g.Idle.IsZero():
			g.Idle = now
		}
		g.Looks, g.Busy = g.Looks+1, g.Busy+float64(k.Lately.MeanPct)
	}
}

// Tell says what was seen in the last so many seconds, if it is time for that; conf is
// the node's gres.conf.
func (u *Use) Tell(every time.Duration, conf *GresFile, seen []Known) (told []Told, of time.Duration) {
	if of = u.Last.Sub(u.Told); of < every || of < time.Second {
		return nil, 0
	}
	for i, g := range u.GPUs {
		if devices := conf.devices(seen, i, seen[i].File); g.Looks > 0 && len(devices) == 1 {
			told = append(told, Told{devices[0], min(int(math.Round(g.Busy/float64(g.Looks))), 100), g.Idle})
		}
		u.GPUs[i].Looks, u.GPUs[i].Busy = 0, 0
	}
	u.Told = u.Last
	return told, of
}
