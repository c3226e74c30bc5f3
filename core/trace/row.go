// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// row is a job as a file has it. Its methods read a column; the first error of
// any stays in err.
type row struct {
	line int
	cell func(col string) string
	err  error
}

func (r *row) wrong(col, what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s %s: %s", col, quote(r.text(col)), what)
	}
}

func (r *row) text(col string) string { return strings.TrimSpace(r.cell(col)) }

// number reads a plain number from 0 on. ParseFloat would take Inf and 0x1p2 too.
func (r *row) number(col string) float64 {
	f, ok := number(r.text(col))
	if !ok {
		r.wrong(col, "must be a number, 0 or more")
	}
	return f
}

func number(s string) (float64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && strings.Trim(s, "0123456789.eE+-") == "" && f >= 0
}

// count reads a whole number; 4.0 is one.
func (r *row) count(col string) int {
	f := r.number(col)
	if f != math.Trunc(f) || f > 1<<40 {
		r.wrong(col, "must be a whole number")
		return 0
	}
	return int(f)
}

// span reads a time in units.
func (r *row) span(col string, unit time.Duration) time.Duration {
	return r.within(col, r.number(col), unit)
}

// within is n units as a Duration, to the nearest nanosecond.
func (r *row) within(col string, n float64, unit time.Duration) time.Duration {
	ns := math.Round(n * float64(unit))
	if !(ns <= float64(2*timeMost)) {
		r.wrong(col, "is too long a time")
		return 0
	}
	return time.Duration(ns)
}

// moment reads a date and time as time since 1970. Without a zone it is UTC.
func (r *row) moment(col string) time.Duration {
	d, ok := moment(r.text(col))
	if !ok {
		r.wrong(col, "must be a time from 1970 on, such as 2026-01-31 17:05:09")
	}
	return d
}

func moment(s string) (time.Duration, bool) {
	for _, layout := range []string{time.DateTime, "2006-01-02T15:04:05", time.RFC3339} {
		if t, err := time.Parse(layout, s); err == nil {
			d := t.Sub(unix0)
			return d, d >= 0 && d <= 2*timeMost
		}
	}
	f, ok := number(s) // seconds, as with SLURM_TIME_FORMAT=%s
	if !ok || f > (2*timeMost).Seconds() {
		return 0, false
	}
	return time.Duration(f * 1e9), true
}

var unix0 = time.Unix(0, 0).UTC()

func (r *row) flag(col string) bool {
	switch strings.ToLower(r.text(col)) {
	case "true", "yes", "1":
		return true
	case "", "false", "no", "0":
		return false
	}
	r.wrong(col, "must be true or false")
	return false
}

// reader returns the next row's cells and line, or io.EOF. Any other error is
// that row's alone.
type reader func() (line int, cells []string, err error)

// commas reads comma separated values with quotes, as RFC 4180 has them.
func commas(data []byte) reader {
	c := csv.NewReader(bytes.NewReader(data))
	c.FieldsPerRecord, c.TrimLeadingSpace = -1, true
	return func() (int, []string, error) {
		cells, err := c.Read()
		var bad *csv.ParseError
		if errors.As(err, &bad) {
			return bad.StartLine, nil, bad.Err
		}
		if err != nil {
			return 0, nil, err
		}
		line, _ := c.FieldPos(0)
		return line, cells, nil
	}
}

// lines reads values that nothing quotes.
func lines(data []byte, split func(string) []string) reader {
	rest, line := string(data), 0
	return func() (int, []string, error) {
		for rest != "" {
			var s string
			s, rest, _ = strings.Cut(rest, "\n")
			line++
			if s = strings.TrimRight(s, "\r"); strings.TrimSpace(s) != "" {
				return line, split(s), nil
			}
		}
		return 0, nil, io.EOF
	}
}

// table reads a file whose first row names its columns, in any order and case.
func (in *input) table(next reader, need []string, job func(*row) (Job, error)) error {
	line, head, err := next()
	if err != nil {
		return in.fail(line, in.form, "the header: %s", err)
	}
	cols := columns(head)
	for _, c := range need {
		if _, ok := cols[c]; !ok {
			return in.fail(line, in.form, "has no column %s", c)
		}
	}
	for {
		line, cells, err := next()
		switch {
		case err == io.EOF:
			return nil
		case err == nil && len(cells) == 1 && strings.TrimSpace(cells[0]) == "":
			continue
		case err == nil && len(cells) != len(head):
			err = fmt.Errorf("has %d columns, the header %d", len(cells), len(head))
		}
		var j Job
		if err == nil {
			j, err = job(&row{line: line, cell: func(col string) string {
				if i, ok := cols[col]; ok {
					return cells[i]
				}
				return ""
			}})
		}
		if err := in.take(line, j, err); err != nil {
			return err
		}
	}
}

func columns(head []string) map[string]int {
	cols := map[string]int{}
	for i, h := range head {
		h = strings.ToLower(strings.TrimSpace(h))
		if _, ok := cols[h]; !ok {
			cols[h] = i
		}
	}
	return cols
}

// header makes a sniffer for a first line with these columns.
func header(sep string, need ...string) func(first, head string) bool {
	return func(first, _ string) bool {
		cols := columns(strings.Split(first, sep))
		for _, c := range need {
			if _, ok := cols[c]; !ok {
				return false
			}
		}
		return true
	}
}

// object makes a sniffer for JSON with one of these keys near its start.
func object(keys ...string) func(first, head string) bool {
	return func(first, head string) bool {
		if first == "" || first[0] != '{' && first[0] != '[' {
			return false
		}
		for _, k := range keys {
			if strings.Contains(head, strconv.Quote(k)) {
				return true
			}
		}
		return false
	}
}

// objects reads JSON: a list of objects, an object with such a list under the
// key, or objects one after another. What should be an object and is not is nil.
func objects(data []byte, key string) ([]map[string]any, error) {
	var list []map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	for {
		var v any
		if err := d.Decode(&v); err == io.EOF {
			return list, nil
		} else if err != nil {
			at := int64(len(data))
			var bad *json.SyntaxError
			if errors.As(err, &bad) {
				at = min(bad.Offset, at)
			}
			return nil, fmt.Errorf("line %d: %w", 1+bytes.Count(bytes.TrimSpace(data[:at]), []byte("\n")), err)
		}
		o, _ := v.(map[string]any)
		if o[key] != nil {
			v = o[key]
		}
		if _, ok := v.([]any); !ok {
			v = []any{v}
		}
		for _, e := range v.([]any) {
			o, _ := e.(map[string]any)
			list = append(list, o)
		}
	}
}

// list reads JSON objects as rows; a row's line is its number.
func (in *input) list(job func(*row) (Job, error)) error {
	all, err := objects(in.data, "jobs")
	if err != nil {
		return in.fail(0, in.form, "%s", err)
	}
	for i, o := range all {
		var j Job
		err := errors.New("is no object")
		if o != nil {
			j, err = job(&row{line: i + 1, cell: cellOf(o)})
		}
		if err := in.take(i+1, j, err); err != nil {
			return err
		}
	}
	return nil
}

func cellOf(o map[string]any) func(string) string {
	return func(col string) string {
		switch v := o[col].(type) {
		case nil:
			return ""
		case string:
			return v
		case json.Number, bool:
			return fmt.Sprint(v)
		}
		return "{...}"
	}
}

// quote shows what a file says: short, printable ASCII.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strconv.QuoteToASCII(s)
}

func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// clean makes a name fit to be shown.
func clean(s string) string {
	if len(s) > textMost {
		s = s[:textMost]
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
