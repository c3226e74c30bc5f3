// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Use is how busy a node's GPUs were lately. The node's health check writes it into
// the node's Extra (scontrol update node), where slurmctld shows it to the core:
//
//	themis: gpus 300s to 1733200000: 0=87% 1=0%,1733190000 3=40%
//
// of five minutes up to the second 1733200000 since the epoch: device 0 was busy for
// 87 % of the time, device 1 has not been since 1733190000, nothing is known of 2.
type Use struct {
	Of    time.Duration // at least a second
	Until time.Time     // in seconds
	GPUs  []GPUUse
}

// GPUUse is of one GPU.
type GPUUse struct {
	Device int       // Slurm's number, from 0 to 63
	Busy   int       // per cent of the time in which some kernel ran
	Idle   time.Time // none has since; zero: one did when it was last looked at
}

const (
	usePrefix  = "themis: gpus "
	deviceMost = 63
)

func (u Use) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s%ds to %d:", usePrefix, int64(u.Of.Seconds()), u.Until.Unix())
	for _, g := range u.GPUs {
		fmt.Fprintf(&out, " %d=%d%%", g.Device, g.Busy)
		if !g.Idle.IsZero() {
			fmt.Fprintf(&out, ",%d", g.Idle.Unix())
		}
	}
	return out.String()
}

// ParseUse reads what String writes. ok is false for any other text.
func ParseUse(text string) (u Use, ok bool) {
	rest, ok := strings.CutPrefix(text, usePrefix)
	head, list, found := strings.Cut(rest, ":")
	of, until, to := strings.Cut(head, "s to ")
	if !ok || !found || !to {
		return Use{}, false
	}
	seconds, bad := number(of, 1<<31)
	at, worse := number(until, 1<<40)
	if bad || worse || seconds == 0 {
		return Use{}, false
	}
	u = Use{Of: time.Duration(seconds) * time.Second, Until: time.Unix(at, 0).UTC()}
	for _, word := range strings.Fields(list) {
		device, rest, _ := strings.Cut(word, "=")
		busy, idle, since := strings.Cut(rest, ",")
		busy, percent := strings.CutSuffix(busy, "%")
		d, bad := number(device, deviceMost)
		b, worse := number(busy, 100)
		if bad || worse || !percent {
			return Use{}, false
		}
		g := GPUUse{Device: int(d), Busy: int(b)}
		if since {
			at, bad := number(idle, 1<<40)
			if bad {
				return Use{}, false
			}
			g.Idle = time.Unix(at, 0).UTC()
		}
		u.GPUs = append(u.GPUs, g)
	}
	return u, true
}

func number(text string, most int64) (n int64, bad bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err != nil || n < 0 || n > most
}
