// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps what the arbiter decided and learned in one SQLite file:
// apps, jobs with every estimate of their run time, rho over time, rounds with
// bids and payments, leases. A decision is committed before it is announced, so
// that after kill -9 at any instant the core goes on from the file and the next
// snapshot.
package ledger

import (
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	_ "github.com/mattn/go-sqlite3" // the "sqlite3" driver

	"themis/core/arbiter"
	"themis/core/cluster"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// keepEnded is how long an ended job's row may be needed to restore an arbiter.
	keepEnded = time.Hour
	// keepDetail is how long rounds, bids, rho over time and estimates are kept.
	// Apps, jobs and leases stay: they are what later estimates and audits need.
	keepDetail = 90 * 24 * time.Hour
	pruneEvery = 24 * time.Hour
	// checkMost is the size in bytes above which the whole file is not read at
	// every start; SQLite still notices damage where it comes across it.
	checkMost = 256 << 20
)

// Ledger is an open ledger file. One process at a time holds it. Write may be
// called by one goroutine at a time, everything else by any.
type Ledger struct {
	db     *sql.DB
	lock   *os.File
	path   string
	pruned time.Time
}

// ErrInUse says that another core holds the ledger.
var ErrInUse = errors.New("another themis core uses this ledger")

// Open opens or creates the ledger in the folder, which is made with mode 0700.
// A file that is not a sound ledger of a version up to ours is refused and left
// as it is.
func Open(dir string) (*Ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("ledger folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ledger lock: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("%s: %w", dir, ErrInUse)
	}
	l := &Ledger{lock: lock, path: filepath.Join(dir, "ledger.db")}
	if err := l.open(); err != nil {
		l.Close()
		return nil, fmt.Errorf("ledger %s: %w", l.path, err)
	}
	return l, nil
}

func (l *Ledger) open() error {
	// SQLite would create the file with the umask's mode and follow a link.
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	mode := "WAL"
	if networked(l.path) {
		mode = "DELETE" // WAL needs shared memory, which network file systems lack
	}
	l.db, err = sql.Open("sqlite3", "file:"+escape(l.path)+"?_journal_mode="+mode+
		"&_synchronous=FULL&_txlock=immediate&_busy_timeout=5000&_foreign_keys=on")
	if err != nil {
		return err
	}
	l.db.SetMaxOpenConns(4)
	if st, err := os.Stat(l.path); err == nil && st.Size() > checkMost {
		return l.migrate()
	}
	var sound string
	if err := l.db.QueryRow("PRAGMA quick_check(1)").Scan(&sound); err != nil {
		return fmt.Errorf("not a ledger, or damaged: %w; move it away to start afresh", err)
	} else if sound != "ok" {
		return fmt.Errorf("damaged: %s; move it away to start afresh", sound)
	}
	return l.migrate()
}

func escape(path string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
}

// networked tells file systems on which WAL does not work.
func networked(path string) bool {
	const nfs, smb2, cifs, lustre, gpfs, fuse = 0x6969, 0xfe534d42, 0xff534d42, 0x0bd00bd0, 0x47504653, 0x65735546
	var st syscall.Statfs_t
	if syscall.Statfs(filepath.Dir(path), &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case nfs, smb2, cifs, lustre, gpfs, fuse:
		return true
	}
	return false
}

func (l *Ledger) migrate() error {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	var have int
	if err := l.db.QueryRow("PRAGMA user_version").Scan(&have); err != nil {
		return err
	}
	if have > len(files) {
		return fmt.Errorf("written by a newer themis (schema %d, this one knows %d)", have, len(files))
	}
	for v := have; v < len(files); v++ {
		text, err := migrations.ReadFile(files[v])
		if err != nil {
			return err
		}
		err = l.tx(func(tx *sql.Tx) error {
			if _, err := tx.Exec(string(text)); err != nil {
				return err
			}
			_, err := tx.Exec(fmt.Sprintf("PRAGMA user_version = %d", v+1))
			return err
		})
		if err != nil {
			return fmt.Errorf("migrate to schema %d: %w", v+1, err)
		}
	}
	return nil
}

// Close releases the file. It may be called twice.
func (l *Ledger) Close() error {
	var err error
	if l.db != nil {
		err = l.db.Close()
	}
	l.lock.Close()
	return err
}

func (l *Ledger) tx(do func(*sql.Tx) error) error {
	tx, err := l.db.Begin()
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		tx.Rollback()
		return err
	}
	return tx.Commit()
}

// Write commits one decision of the arbiter, all of it or nothing. took is how
// long the decision took to make.
func (l *Ledger) Write(a *arbiter.Arbiter, d *arbiter.Decision, took time.Duration) error {
	if len(d.Apps)+len(d.Jobs)+len(d.Leases) == 0 && d.Round == nil {
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
	w.exec("DELETE FROM bid WHERE round IN (SELECT id FROM round WHERE at < ?)", t)
	w.exec("DELETE FROM round WHERE at < ?", t)
	w.exec("DELETE FROM rho WHERE at < ?", t)
	w.exec("DELETE FROM estimate WHERE at < ?", t)
}

func (w *writer) app(s arbiter.SavedApp) {
	fluid, _ := json.Marshal(s.Fluid)
	a := &s.App
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
		w.exec("INSERT INTO bid VALUES (?,?,?,?,?,?,?,?,?)", r.ID, b.App, b.In, b.Rho, b.After, b.Wanted, b.Won, b.Payment, string(places))
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

// Load returns what an arbiter needs to go on, and the finished runs that
// estimates of like jobs use, oldest first.
func (l *Ledger) Load(now time.Time) (arbiter.Saved, []arbiter.SavedJob, error) {
	s, past, err := l.load(now)
	if err != nil {
		return s, nil, fmt.Errorf("read ledger %s: %w", l.path, err)
	}
	return s, past, nil
}

func (l *Ledger) load(now time.Time) (s arbiter.Saved, past []arbiter.SavedJob, err error) {
	var ids string
	var fluid sql.NullInt64
	row := l.db.QueryRow("SELECT (SELECT value FROM meta WHERE key='ids'), (SELECT CAST(value AS INTEGER) FROM meta WHERE key='fluid')")
	var idsNull sql.NullString
	if err = row.Scan(&idsNull, &fluid); err != nil {
		return s, nil, err
	}
	if ids = idsNull.String; ids != "" {
		if err = json.Unmarshal([]byte(ids), &s.IDs); err != nil {
			return s, nil, err
		}
	}
	s.Fluid = fromMicros(fluid)
	if s.Jobs, err = l.jobs("SELECT saved FROM job WHERE done = 0 OR ended > ? ORDER BY submit, id", micros(now.Add(-keepEnded))); err != nil {
		return s, nil, err
	}
	if past, err = l.jobs("SELECT saved FROM (SELECT saved, ended FROM job WHERE done = 1 AND outcome = 'completed' ORDER BY ended DESC LIMIT 5000) ORDER BY ended"); err != nil {
		return s, nil, err
	}
	if s.Leases, err = l.leases("WHERE state <> 'over' ORDER BY id"); err != nil {
		return s, nil, err
	}
	last, err := l.Rounds(1)
	if err != nil {
		return s, nil, err
	}
	if len(last) > 0 {
		s.Last = &last[0].Round
	}
	needed := map[string]bool{}
	for _, j := range s.Jobs {
		needed[j.App] = true
	}
	s.Apps, err = l.apps(needed)
	return s, past, err
}

func (l *Ledger) jobs(query string, args ...any) ([]arbiter.SavedJob, error) {
	return collect(l.db, func(rows *sql.Rows) (j arbiter.SavedJob, err error) {
		var saved string
		if err = rows.Scan(&saved); err == nil {
			err = json.Unmarshal([]byte(saved), &j)
		}
		return j, err
	}, query, args...)
}

func (l *Ledger) apps(needed map[string]bool) ([]arbiter.SavedApp, error) {
	all, err := collect(l.db, func(rows *sql.Rows) (s arbiter.SavedApp, err error) {
		var fluid string
		var submit, reference, ended sql.NullInt64
		a := &s.App
		if err = rows.Scan(&a.ID, &a.Entity, &a.User, &a.Weight, &a.Order, &submit, &reference, &ended, &a.Rho, &s.Work, &fluid); err != nil {
			return s, err
		}
		a.Submit, a.Reference, a.Ended = fromMicros(submit), fromMicros(reference), fromMicros(ended)
		err = json.Unmarshal([]byte(fluid), &s.Fluid)
		return s, err
	}, "SELECT * FROM app ORDER BY ord")
	var out []arbiter.SavedApp
	for _, s := range all {
		if needed[s.App.ID] {
			out = append(out, s)
		}
	}
	return out, err
}

func (l *Ledger) leases(where string, args ...any) ([]arbiter.Lease, error) {
	return collect(l.db, func(rows *sql.Rows) (x arbiter.Lease, err error) {
		var places, state string
		var length float64
		var granted, started, expires, deadline, ended sql.NullInt64
		if err = rows.Scan(&x.ID, &x.Job, &x.App, &x.Round, &state, &places, &length, &granted, &started, &expires,
			&deadline, &ended, &x.Renewals, &x.Anywhere, &x.Warned, &x.Reason); err != nil {
			return x, err
		}
		x.State, x.Length = arbiter.LeaseState(state), time.Duration(length*float64(time.Second))
		x.Granted, x.Started, x.Expires = fromMicros(granted), fromMicros(started), fromMicros(expires)
		x.Deadline, x.Ended = fromMicros(deadline), fromMicros(ended)
		err = json.Unmarshal([]byte(places), &x.On)
		return x, err
	}, "SELECT * FROM lease "+where, args...)
}

// Leases returns the newest leases, live or over, newest first.
func (l *Ledger) Leases(limit int) ([]arbiter.Lease, error) {
	return l.leases("ORDER BY id DESC LIMIT ?", limit)
}

// StoredRound is a round with how long it took to decide.
type StoredRound struct {
	arbiter.Round
	Took time.Duration
}

// Rounds returns the newest rounds with their bids, newest first.
func (l *Ledger) Rounds(limit int) ([]StoredRound, error) {
	rounds, err := collect(l.db, func(rows *sql.Rows) (r StoredRound, err error) {
		var at sql.NullInt64
		var took int64
		err = rows.Scan(&r.ID, &at, &r.Free, &r.Apps, &r.Welfare, &r.Bound, &r.Exact, &took)
		r.At, r.Took = fromMicros(at), time.Duration(took)*time.Microsecond
		return r, err
	}, "SELECT * FROM round ORDER BY id DESC LIMIT ?", limit)
	for i := range rounds {
		if err == nil {
			rounds[i].Bids, err = l.bids(rounds[i].ID)
		}
	}
	return rounds, err
}

func (l *Ledger) bids(round uint64) ([]arbiter.BidRecord, error) {
	return collect(l.db, func(rows *sql.Rows) (b arbiter.BidRecord, err error) {
		var places string
		var id uint64
		if err = rows.Scan(&id, &b.App, &b.In, &b.Rho, &b.After, &b.Wanted, &b.Won, &b.Payment, &places); err == nil {
			err = json.Unmarshal([]byte(places), &b.Places)
		}
		return b, err
	}, "SELECT * FROM bid WHERE round = ? ORDER BY rho DESC, app", round)
}

func collect[T any](db *sql.DB, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := db.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func fromMicros(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMicro(n.Int64).UTC()
}
