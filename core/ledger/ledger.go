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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	_ "github.com/mattn/go-sqlite3" // the "sqlite3" driver
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
	// proofsKept is how many rounds, the newest, can be verified.
	proofsKept = 1000
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
