// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// progress is a bar on a terminal with the time that is left; nothing elsewhere.
type progress struct {
	out   *os.File
	begin time.Time
	mu    sync.Mutex
	parts map[string]float64
	shown time.Time
	drawn bool
}

func newProgress(out *os.File) *progress {
	p := &progress{begin: time.Now(), parts: map[string]float64{}}
	if st, err := out.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
		p.out = out
	}
	return p
}

// set says how large a part of the whole a task has done. Safe for concurrent use.
func (p *progress) set(task string, share float64) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts[task] = share
	now := time.Now()
	if now.Sub(p.shown) < 200*time.Millisecond || now.Sub(p.begin) < time.Second {
		return
	}
	p.shown = now
	var sum float64
	for _, s := range p.parts {
		sum += s
	}
	left := "?"
	if sum > 0.01 {
		left = time.Duration(float64(now.Sub(p.begin)) * (1 - sum) / sum).Round(time.Second).String()
	}
	full := min(max(int(sum*40), 0), 40)
	fmt.Fprintf(p.out, "\r[%s%s] %3.0f%%, %s left \033[K", strings.Repeat("=", full), strings.Repeat(" ", 40-full), 100*sum, left)
	p.drawn = true
}

// done takes the bar away.
func (p *progress) done() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\033[K")
	}
}
