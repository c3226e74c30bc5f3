// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"strconv"
	"strings"

	"themis/core/cluster"
)

// slurm reads NodeName= lines of slurm.conf or scontrol show node -o, and
// SwitchName= lines of topology.conf: a switch with Nodes= is their rack.
func (n *nodeList) slurm() error {
	racks := map[string]string{}
	var preset map[string]string
	text := strings.ReplaceAll(strings.ReplaceAll(string(n.in.data), "\r\n", "\n"), "\\\n", "\v ") // keeps the count of lines
	at := 0
	for line := range strings.SplitSeq(text, "\n") {
		at++
		here := at
		at += strings.Count(line, "\v")
		line, _, _ = strings.Cut(line, "#")
		values := pairs(line)
		switch {
		case values["switchname"] != "" && values["nodes"] != "":
			names, err := hostlist(values["nodes"])
			if err != nil {
				return n.in.fail(here, clusterForm, "%s", err)
			}
			if len(racks)+len(names) > 2*nodesMost {
				return n.in.fail(here, clusterForm, "more than %d nodes", nodesMost)
			}
			for _, name := range names {
				racks[name] = values["switchname"]
			}
		case strings.EqualFold(values["nodename"], "DEFAULT"):
			preset = values
		case values["nodename"] != "":
			for k, v := range preset {
				if _, ok := values[k]; !ok {
					values[k] = v
				}
			}
			if err := n.slurmNodes(here, values); err != nil {
				return n.in.fail(here, clusterForm, "%s", err)
			}
		}
	}
	for i := range n.Nodes {
		n.Nodes[i].Rack = racks[n.Nodes[i].Name]
	}
	return nil
}

func (n *nodeList) slurmNodes(line int, values map[string]string) error {
	names, err := hostlist(values["nodename"])
	if err != nil {
		return err
	}
	kind := ""
	if m := gresGPU.FindStringSubmatch(values["gres"]); m != nil {
		kind = m[1]
	}
	gpus := gpusOfGRES(values["gres"])
	cpus, _ := strconv.Atoi(values["cpus"])
	if tot, err := strconv.Atoi(values["cputot"]); err == nil {
		cpus = tot
	}
	mem, _ := strconv.ParseInt(values["realmemory"], 10, 64)
	for _, name := range names {
		err := n.add(&row{line: line}, cluster.Node{Name: name, CPUs: max(cpus, 0), MemMiB: max(mem, 0)}, kind, gpus)
		if err != errLeft {
			return err
		}
	}
	return nil
}

// pairs are the key=value words of a line, keys in small letters.
func pairs(line string) map[string]string {
	values := map[string]string{}
	for _, word := range strings.Fields(line) {
		if key, value, ok := strings.Cut(word, "="); ok {
			values[strings.ToLower(key)] = value
		}
	}
	return values
}

// hostlist expands n[01-03,7],gpu5 to its names. One pair of brackets a name.
func hostlist(s string) ([]string, error) {
	var names []string
	for s != "" {
		end := strings.IndexByte(s, ',')
		if open := strings.IndexByte(s, '['); open >= 0 && (end < 0 || open < end) {
			shut := strings.IndexByte(s, ']')
			if shut < open {
				return nil, fmt.Errorf("%s: a bracket is missing", quote(s))
			}
			rest, after, _ := strings.Cut(s[shut+1:], ",")
			if strings.ContainsAny(rest, "[]") {
				return nil, fmt.Errorf("%s: more than one pair of brackets", quote(s))
			}
			for _, part := range strings.Split(s[open+1:shut], ",") {
				more, err := span(s[:open], part, rest, nodesMost-len(names))
				if err != nil {
					return nil, err
				}
				names = append(names, more...)
			}
			s = after
			continue
		}
		var name string
		name, s, _ = strings.Cut(s, ",")
		if len(names) >= nodesMost {
			return nil, fmt.Errorf("more than %d nodes", nodesMost)
		}
		names = append(names, name)
	}
	return names, nil
}

// span expands 01-03 between a name's two ends, leading zeros kept.
func span(before, part, after string, most int) ([]string, error) {
	low, high, ranged := strings.Cut(part, "-")
	if !ranged {
		high = low
	}
	from, err1 := strconv.ParseUint(low, 10, 32)
	to, err2 := strconv.ParseUint(high, 10, 32)
	switch {
	case len(before)+len(after) > textMost:
		return nil, fmt.Errorf("%s: names of more than %d bytes", quote(before), textMost)
	case err1 != nil || err2 != nil || to < from || len(low) > 10:
		return nil, fmt.Errorf("%s: is no range such as 01-16", quote(part))
	case to-from >= uint64(max(most, 0)):
		return nil, fmt.Errorf("%s: more than %d nodes", quote(part), nodesMost)
	}
	var names []string
	for i := from; i <= to; i++ {
		names = append(names, fmt.Sprintf("%s%0*d%s", before, len(low), i, after))
	}
	return names, nil
}
