// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"themis/core/arbiter"
	"themis/core/auction"
	"themis/core/cluster"
	"themis/core/fairness"
)

// Write commits one decision of the arbiter, all of it or nothing. took is how
// long the decision took to make.
func (l *Ledger) Write(a *arbiter.Arbiter, d *arbiter.Decision, took time.Duration) error {
	if len(d.Apps)+len(d.Jobs)+len(d.Leases)+len(d.Debts)+len(d.Places) == 0 && d.Round == nil {
		return nil
	}
	err := l.tx(func(tx *sql.Tx) error {
		w := &writer{tx: tx, at: a.Now()}
		if a.Now().Sub(l.pruned) > pruneEvery {
			w.prune(a.Now().Add(-keepDetail))
			l.pruned = a.Now()
		}
		ids, _ := json.Marshal(a.IDs())
		w.exec("INSERT OR REPLACE INTO meta VALUES ('ids', ?), ('fluid', ?)", string(ids), micros(a.FluidNow()))
		for _, app := range d.Apps {
			w.app(a.SaveApp(app))
		}
		for _, j := range d.Jobs {
			w.job(j)
		}
		if d.Round != nil {
			w.round(d.Round, took)
		}
		for entity, debt := range d.Debts {
			w.exec("INSERT OR REPLACE INTO debt VALUES (?,?,?)", entity, debt.GPUSeconds, micros(debt.At))
		}
		for at, m := range d.Places {
			measured, _ := json.Marshal(m)
			w.exec("INSERT OR REPLACE INTO place VALUES (?,?,?)", at.User, at.Model, string(measured))
		}
		for _, lease := range d.Leases { // those that end make room first
			if lease.State == arbiter.Over {
				w.lease(lease)
			}
		}
		for _, lease := range d.Leases {
			if lease.State != arbiter.Over {
				w.lease(lease)
			}
		}
		return w.err
	})
	if err != nil {
		return fmt.Errorf("write ledger %s: %w", l.path, err)
	}
	return nil
}

// writer keeps the first error, so that a decision reads as a list.
type writer struct {
	tx  *sql.Tx
	at  time.Time
	err error
}

func (w *writer) exec(query string, args ...any) {
	if w.err == nil {
		_, w.err = w.tx.Exec(query, args...)
	}
}

func (w *writer) prune(before time.Time) {
	t := micros(before)
	w.exec("DELETE FROM proof WHERE round IN (SELECT id FROM round WHERE at < ?)", t)
	w.exec("DELETE FROM bid WHERE round IN (SELECT id FROM round WHERE at < ?)", t)
	w.exec("DELETE FROM round WHERE at < ?", t)
	w.exec("DELETE FROM rho WHERE at < ?", t)
	w.exec("DELETE FROM estimate WHERE at < ?", t)
}

// shadow is the JSON of an app's column fluid: its virtual run and what the
// paper's T_id is made of. Older ledgers have the former only.
type shadow struct {
	fairness.FluidApp
	Crowd float64       `json:"crowd_app_s"`
	Gone  fairness.Size `json:"gone"`
}

func (w *writer) app(s arbiter.SavedApp) {
	a := &s.App
	fluid, _ := json.Marshal(shadow{s.Fluid, a.Crowd, a.Gone})
	w.exec("INSERT OR REPLACE INTO app VALUES (?,?,?,?,?,?,?,?,?,?,?)", a.ID, a.Entity, a.User, a.Weight, a.Order,
		micros(a.Submit), micros(a.Reference), micros(a.Ended), a.Rho, s.Work, string(fluid))
	w.exec(`INSERT INTO rho SELECT ?1, ?2, ?3 WHERE abs(?3 - coalesce(
		(SELECT rho FROM rho WHERE app = ?1 ORDER BY at DESC LIMIT 1), -1)) > 0.02 * ?3`, a.ID, micros(w.at), a.Rho)
}

func (w *writer) job(j *arbiter.Job) {
	s := j.SaveJob()
	saved, _ := json.Marshal(s)
	var wrong any
	if s.Done && j.Outcome == cluster.Completed && s.Attained > 0 {
		wrong = s.First.Total.Seconds() / s.Attained.Seconds()
	}
	var ended any
	if s.Done {
		ended = micros(j.End)
	}
	w.exec(`INSERT INTO estimate SELECT ?,?,?,? WHERE NOT EXISTS
		(SELECT 1 FROM job WHERE id = ? AND estimate_s = ? AND source = ?)`,
		j.ID, micros(w.at), s.Estimate.Total.Seconds(), string(s.Estimate.Source),
		j.ID, s.Estimate.Total.Seconds(), string(s.Estimate.Source))
	w.exec("INSERT OR REPLACE INTO job VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", j.ID, s.App, j.UID, j.Name, j.Shape.Count(),
		micros(j.Submit), ended, string(j.Outcome), s.Estimate.Total.Seconds(), string(s.Estimate.Source),
		s.First.Total.Seconds(), string(s.First.Source), s.Attained.Seconds(), wrong, s.Done, string(saved))
}

func (w *writer) round(r *arbiter.Round, took time.Duration) {
	w.exec("INSERT INTO round VALUES (?,?,?,?,?,?,?,?)", r.ID, micros(r.At), r.Free, r.Apps, r.Welfare, r.Bound, r.Exact, took.Microseconds())
	for _, b := range r.Bids {
		places, _ := json.Marshal(b.Places)
		w.exec("INSERT INTO bid VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)", r.ID, b.App, b.In, b.Rho, b.After, b.Wanted, b.Won, b.Payment, string(places),
			b.PaymentLow, b.Gain, b.Price, b.Slack.Seconds(), string(b.Source))
	}
	if r.Proof != nil && w.err == nil {
		var packed []byte
		if packed, w.err = pack(r.Proof); w.err == nil {
			w.exec("INSERT INTO proof VALUES (?,?)", r.ID, packed)
			w.exec("DELETE FROM proof WHERE round <= ?", int64(r.ID)-proofsKept)
		}
	}
}

func (w *writer) lease(l *arbiter.Lease) {
	places, _ := json.Marshal(l.On)
	w.exec(`INSERT INTO lease VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET
		state=excluded.state, places=excluded.places, length_s=excluded.length_s, granted=excluded.granted,
		started=excluded.started, expires=excluded.expires, deadline=excluded.deadline, ended=excluded.ended,
		renewals=excluded.renewals, anywhere=excluded.anywhere, warned=excluded.warned, reason=excluded.reason`,
		l.ID, l.Job, l.App, l.Round, string(l.State), string(places), l.Length.Seconds(), micros(l.Granted),
		micros(l.Started), micros(l.Expires), micros(l.Deadline), micros(l.Ended), l.Renewals, l.Anywhere, l.Warned, l.Reason)
	w.exec("DELETE FROM lease_gpu WHERE lease = ?", l.ID)
	if l.State == arbiter.Over || l.State == arbiter.Reserved {
		return
	}
	for _, s := range l.On {
		for range s.GPUs { // the lowest number that is free on the node
			w.exec(`INSERT INTO lease_gpu SELECT ?, coalesce((SELECT min(n) FROM
				(SELECT 0 AS n UNION SELECT gpu + 1 FROM lease_gpu WHERE node = ?)
				WHERE n NOT IN (SELECT gpu FROM lease_gpu WHERE node = ?)), 0), ?`, s.Node, s.Node, s.Node, l.ID)
		}
	}
}

func pack(p *auction.Proof) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(z).Encode(p); err != nil {
		return nil, err
	}
	err = z.Close()
	return out.Bytes(), err
}
