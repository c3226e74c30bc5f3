// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"strings"

	"themis/core/arbiter"
)

// policies are all that --policy knows, in the order in which they are listed.
var policies = []struct {
	name, title string
	make        func(w *World) Policy
}{
	{"themis", "Themis: as it schedules live", func(w *World) Policy { return w.newHost(live(w)) }},
	{"themis-paper", "THEMIS as the paper describes it", func(w *World) Policy { return w.newHost(paper(w)) }},
	{"gandiva", "Gandiva, as THEMIS's authors model it: best placement", func(w *World) Policy { return newLeased(w, gandiva) }},
	{"tiresias", "Tiresias, as they model it: least attained GPU time", func(w *World) Policy { return newLeased(w, tiresias) }},
	{"tiresias-2d", "Tiresias with discretised queues", func(w *World) Policy { return newLeased(w, tiresias2D) }},
	{"optimus", "Optimus, as they model it: largest relative gain of finish time", func(w *World) Policy { return newLeased(w, optimus) }},
	{"slaq", "SLAQ, as they model it: largest fall of loss", func(w *World) Policy { return newLeased(w, slaq) }},
	{"srtf", "shortest remaining time first", func(w *World) Policy { return newLeased(w, srtf) }},
	{"srsf", "shortest remaining service first", func(w *World) Policy { return newLeased(w, srsf) }},
	{"strawman", "all GPUs to the app with the worst rho (paper, section 4)", func(w *World) Policy { return newStrawman(w) }},
	{"themis-coded", "THEMIS as its authors coded it", func(w *World) Policy { return coded(w) }},
	{"fifo", "FIFO with EASY backfill", func(w *World) Policy { return fifo(w) }},
	{"multifactor", "Slurm: priority/multifactor, conservative backfill", func(w *World) Policy { return multifactor(w, true) }},
	{"multifactor-easy", "the same with EASY backfill", func(w *World) Policy { return multifactor(w, false) }},
	{"capacity", "YARN: CapacityScheduler", func(w *World) Policy { return capacity(w) }},
	{"fair", "YARN: FairScheduler", func(w *World) Policy { return fair(w) }},
	{"gavel", "Gavel: finish-time fairness", func(w *World) Policy { return newGavel(w) }},
	{"shockwave", "Shockwave, greedily", func(w *World) Policy { return shockwave(w) }},
}

// live is the configuration of the service, with the run's own settings.
func live(w *World) arbiter.Config {
	cfg := arbiter.Defaults()
	cfg.F, cfg.Lease, cfg.Restart = w.F, w.Lease, w.Restart
	cfg.LeaseMin, cfg.Grid = min(cfg.LeaseMin, w.Lease), w.Lease/4
	cfg.Settle, cfg.Grace = 0, 0 // the simulated host sees all of an instant at once and loses nothing
	cfg.Target, cfg.Aim = w.Target, arbiter.Aim(w.Aim)
	cfg.Entity, cfg.Mute = arbiter.Entity(w.Entity), true
	return cfg
}

// paper is the paper's own form: its T_id, each app an entity, payment in GPUs.
func paper(w *World) arbiter.Config {
	cfg := live(w)
	cfg.Grid = 0
	cfg.Reference, cfg.Payment, cfg.Entity = arbiter.ReferencePaper, arbiter.PayGPUs, arbiter.ByApp
	return cfg
}

// Policies lists names and titles.
func Policies() (names, titles []string) {
	for _, p := range policies {
		names, titles = append(names, p.name), append(titles, p.title)
	}
	return names, titles
}

// New makes a policy for one run.
func New(name string, w *World) (p Policy, title string, err error) {
	for _, p := range policies {
		if p.name == name {
			return p.make(w), p.title, nil
		}
	}
	names, _ := Policies()
	return nil, "", fmt.Errorf("no policy %q\nhint: one of %s", name, strings.Join(names, ", "))
}
