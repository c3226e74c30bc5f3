// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Print writes the reading for people: a table of GPUs and MIG instances, how
// they are connected, and the slots.
func (m *Machine) Print(w io.Writer) {
	fmt.Fprintln(w, m.headline())
	if len(m.GPUs) == 0 {
		return
	}
	fmt.Fprintln(w)
	columns(w, func(row func(...any)) {
		row("GPU", "MINOR", "TYPE", "MIB", "BUS", "NODE", "CORES", "MIG", "ECC", "REMAPPED", "PROCS", "UTIL", "STATE")
		for i := range m.GPUs {
			m.GPUs[i].print(row)
		}
	})
	m.printLinks(w)
	fmt.Fprintln(w)
	for i, s := range m.Slots {
		fmt.Fprintf(w, "slot %d: GPUs %s (%s)\n", i, Ranges(s.GPUs), s.By)
	}
}

// headline counts whole GPUs and MIG instances by type; a divided GPU is not one.
func (m *Machine) headline() string {
	count := map[string]int{}
	silent := 0
	for i := range m.GPUs {
		g := &m.GPUs[i]
		switch {
		case !g.Responds():
			silent++
		case g.Divided():
			for j := range g.MIG.Instances {
				count[TypeOfInstance(g, &g.MIG.Instances[j])]++
			}
		default:
			count[cmp.Or(g.Type, "of unknown type")]++
		}
	}
	var parts []string
	for _, t := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d %s", count[t], t))
	}
	if silent > 0 {
		parts = append(parts, fmt.Sprintf("%d not responding", silent))
	}
	if len(parts) == 0 {
		parts = []string{"no GPUs"}
	}
	return fmt.Sprintf("%s; driver %s", strings.Join(parts, ", "), orDash(m.Driver))
}

func (g *GPU) print(row func(...any)) {
	state := "ok"
	for i, f := range g.faults() {
		state = strings.TrimPrefix(state+"; "+f.Reason, "ok; ")
		if i > 0 {
			break
		}
	}
	if state == "ok" && len(g.Throttle) > 0 {
		state = "slowed: " + strings.Join(g.Throttle, ",")
	}
	mig := "-"
	if g.MIG != nil {
		mig = "off"
		if g.MIG.Enabled {
			mig = "on"
		}
		if g.MIG.Enabled != g.MIG.Pending {
			mig += ",changes"
		}
	}
	ecc := "-"
	if g.ECC != nil {
		ecc = "off"
		if g.ECC.Enabled {
			ecc = value(g.ECC.Volatile)
		}
	}
	remapped := "-"
	if g.Remapped != nil {
		remapped = strconv.Itoa(g.Remapped.Correctable + g.Remapped.Uncorrectable)
	}
	util := "-"
	if g.UtilPct != nil {
		util = fmt.Sprintf("%d%%", *g.UtilPct)
	}
	row(g.Index, value(g.Minor), orDash(g.Type), value(g.MemoryMiB), orDash(g.Bus), value(g.Node), orDash(Ranges(g.Cores)),
		mig, ecc, remapped, value(g.Processes), util, state)
	if !g.Divided() {
		return
	}
	for i := range g.MIG.Instances {
		in := &g.MIG.Instances[i]
		row(fmt.Sprintf("%d.%d", g.Index, in.Index), "", TypeOfInstance(g, in), value(in.MemoryMiB), "", "", "", "", "", "", "", "", "")
	}
}

// printLinks writes the matrix of links, with the words of `nvidia-smi topo -m`
// and SW12 for 12 links over an NVSwitch.
func (m *Machine) printLinks(w io.Writer) {
	if len(m.Links) == 0 {
		return
	}
	fmt.Fprintln(w)
	cell := map[[2]int]string{}
	for _, l := range m.Links {
		cell[[2]int{l.A, l.B}], cell[[2]int{l.B, l.A}] = l.String(), l.String()
	}
	columns(w, func(row func(...any)) {
		head := []any{"LINKS"}
		for i := range m.GPUs {
			head = append(head, m.GPUs[i].Index)
		}
		row(head...)
		for i := range m.GPUs {
			cells := []any{m.GPUs[i].Index}
			for j := range m.GPUs {
				c := cell[[2]int{m.GPUs[i].Index, m.GPUs[j].Index}]
				if i == j {
					c = "X"
				}
				cells = append(cells, orDash(c))
			}
			row(cells...)
		}
	})
}

// columns aligns rows.
func columns(w io.Writer, rows func(row func(cells ...any))) {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	rows(func(cells ...any) {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, c)
		}
		fmt.Fprintln(t)
	})
	t.Flush()
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

func value[T any](p *T) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprint(*p)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
