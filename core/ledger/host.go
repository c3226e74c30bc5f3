// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
)

// Host is a host that this ledger's core serves, kept so that one that starts
// knows whose jobs run where before it is told.
type Host struct {
	Kind    string   `json:"kind"` // "slurm" or "yarn"
	Cluster string   `json:"cluster"`
	Nodes   []string `json:"nodes"` // as the pool names them
}

const hostKey = "host/" // of table meta, the kind follows

// Hosts are those written down.
func (l *Ledger) Hosts() ([]Host, error) {
	hosts, err := collect(l.db, func(rows *sql.Rows) (h Host, err error) {
		var text string
		if err = rows.Scan(&text); err == nil {
			err = json.Unmarshal([]byte(text), &h)
		}
		return h, err
	}, "SELECT value FROM meta WHERE key LIKE '"+hostKey+"%' ORDER BY key")
	if err != nil {
		return nil, fmt.Errorf("read ledger %s: hosts: %w", l.path, err)
	}
	return hosts, nil
}

// WriteHost writes a host down, replacing what was known of it.
func (l *Ledger) WriteHost(h Host) error {
	text, err := json.Marshal(h)
	if err == nil {
		_, err = l.db.Exec("INSERT OR REPLACE INTO meta VALUES (?, ?)", hostKey+h.Kind, string(text))
	}
	if err != nil {
		return fmt.Errorf("write ledger %s: host %s: %w", l.path, h.Kind, err)
	}
	return nil
}

// ForgetHost strikes a host out. It is an error if it is not known.
func (l *Ledger) ForgetHost(kind string) error {
	res, err := l.db.Exec("DELETE FROM meta WHERE key = ?", hostKey+kind)
	if err != nil {
		return fmt.Errorf("write ledger %s: %w", l.path, err)
	}
	if n, _ := res.RowsAffected(); n > 0 {
		return nil
	}
	hosts, err := l.Hosts()
	known := make([]string, len(hosts))
	for i, h := range hosts {
		known[i] = h.Kind
	}
	if err == nil {
		err = fmt.Errorf("ledger %s knows no host %q, but %q", l.path, kind, strings.Join(known, ", "))
	}
	return err
}
