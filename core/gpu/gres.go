// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// GresLine is one device of gres.conf(5): a GPU, or a MIG instance.
type GresLine struct {
	Type  string   `json:"type,omitempty"`
	Files []string `json:"files"` // one: File=; several: MultipleFiles=
	Cores []int    `json:"cores,omitempty"`
	Links []int    `json:"links,omitempty"` // -1 for itself

	model string
}

func (l GresLine) String() string {
	out := "Name=gpu"
	add := func(key, value string) {
		if value != "" {
			out += " " + key + "=" + value
		}
	}
	add("Type", l.Type)
	if len(l.Files) > 1 {
		add("MultipleFiles", strings.Join(l.Files, ","))
	} else {
		add("File", l.Files[0])
	}
	add("Cores", Ranges(l.Cores))
	add("Links", row(l.Links))
	return out
}

func row(links []int) string {
	text := make([]string, len(links))
	for i, n := range links {
		text[i] = strconv.Itoa(n)
	}
	return strings.Join(text, ",")
}

// File is the GPU's device file, "" if its minor number is unknown.
func (g *GPU) File() string {
	if g.Minor == nil {
		return ""
	}
	return fmt.Sprintf("/dev/nvidia%d", *g.Minor)
}

// nameless says why the GPU cannot be named in a configuration, "" if it can.
func (g *GPU) nameless() string {
	switch {
	case !g.Responds():
		return "it does not respond"
	case g.Minor == nil:
		return "it does not say its minor number"
	case g.Type == "":
		return "it does not say its model"
	}
	return ""
}

// GresLines writes the GPUs that respond as gres.conf lines, in order of PCI bus
// id, as Slurm numbers them; notes say what is left out and why. A divided GPU is
// no device; its MIG instances are, each of its own type, connected to nothing.
// Over an NVSwitch a pair has as many links as each has to it.
func GresLines(m *Machine) (lines []GresLine, notes []string) {
	var of []int // index of the GPU
	for i := range m.GPUs {
		g := &m.GPUs[i]
		switch {
		case g.nameless() != "":
			notes = append(notes, fmt.Sprintf("GPU %d is left out: %s", g.Index, g.nameless()))
		case g.Divided():
			for j := range g.MIG.Instances {
				in := &g.MIG.Instances[j]
				if len(in.Files) == 0 {
					notes = append(notes, fmt.Sprintf("MIG instance %d of GPU %d is left out: /proc/driver/nvidia-caps/mig-minors does not name its files", in.Index, g.Index))
					continue
				}
				lines = append(lines, GresLine{Type: TypeOfInstance(g, in), Files: append([]string{g.File()}, in.Files...), Cores: g.Cores, model: g.Model})
				of = append(of, g.Index)
			}
			if len(g.MIG.Instances) == 0 {
				notes = append(notes, fmt.Sprintf("GPU %d is left out: MIG is on, and it has no instances", g.Index))
			}
		default:
			lines = append(lines, GresLine{Type: g.Type, Files: []string{g.File()}, Cores: g.Cores, model: g.Model})
			of = append(of, g.Index)
		}
	}
	joined := map[[2]int]int{}
	for _, l := range m.Links {
		joined[[2]int{l.A, l.B}], joined[[2]int{l.B, l.A}] = l.NVLink, l.NVLink
	}
	for i := range lines {
		for j := range lines {
			n := joined[[2]int{of[i], of[j]}] // 0 where a GPU is divided
			if i == j {
				n = -1
			}
			lines[i].Links = append(lines[i].Links, n)
		}
	}
	return lines, notes
}

// GresFile is what a gres.conf says of the GPUs of one node.
type GresFile struct {
	Lines []GresLine
	Auto  string // AutoDetect, if it is on
}

// Files are the GPUs' own device files; a MIG instance's is its GPU's.
func (f *GresFile) Files() (out []string) {
	for _, l := range f.Lines {
		out = append(out, l.Files[0])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ParseGres reads the lines of a gres.conf that are about GPUs of node, its host
// name without a domain. Include is not followed.
func ParseGres(text, node string) (*GresFile, error) {
	f := &GresFile{}
	number := 0
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		number++
		line, _, _ = strings.Cut(line, "#")
		keys := map[string]string{}
		for _, word := range strings.Fields(line) {
			k, v, ok := strings.Cut(word, "=")
			if !ok {
				k, v = "include", word
			}
			if keys[strings.ToLower(k)] == "" {
				keys[strings.ToLower(k)] = v
			}
		}
		if err := f.add(keys, node); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	return f, nil
}

func (f *GresFile) add(keys map[string]string, node string) error {
	if nodes := keys["nodename"]; nodes != "" {
		list, err := expand(nodes)
		if err != nil {
			return err
		}
		if !slices.Contains(list, node) {
			return nil
		}
	}
	if a := keys["autodetect"]; a != "" && !strings.EqualFold(a, "off") {
		f.Auto = a
	}
	if !strings.EqualFold(keys["name"], "gpu") {
		return nil
	}
	l := GresLine{Type: keys["type"]}
	var err error
	if c := keys["cores"]; c != "" {
		if l.Cores, err = ParseRanges(c); err != nil {
			return fmt.Errorf("Cores: %w", err)
		}
	}
	if text := keys["links"]; text != "" {
		for part := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(part)
			if err != nil {
				return fmt.Errorf("Links: %q is no number", part)
			}
			l.Links = append(l.Links, n)
		}
	}
	if many := keys["multiplefiles"]; many != "" {
		if l.Files, err = expand(many); err == nil {
			f.Lines = append(f.Lines, l)
		}
		return err
	}
	files, err := expand(keys["file"])
	for _, file := range files {
		one := l
		one.Files = []string{file}
		f.Lines = append(f.Lines, one)
	}
	return err
}

// expand lists what a comma-separated list of names with one range in brackets
// each stands for: /dev/nvidia[0-3], n[08-11,20].
func expand(list string) (out []string, err error) {
	for list != "" {
		end, inside := len(list), false
		for i, c := range list {
			if c == '[' || c == ']' {
				inside = c == '['
			} else if c == ',' && !inside {
				end = i
				break
			}
		}
		part := list[:end]
		list = strings.TrimPrefix(list[end:], ",")
		before, rest, ranged := strings.Cut(part, "[")
		if !ranged {
			out = append(out, part)
			continue
		}
		ranges, after, closed := strings.Cut(rest, "]")
		if !closed || strings.Contains(after, "[") {
			return nil, fmt.Errorf("%q: one range in brackets is read", part)
		}
		for r := range strings.SplitSeq(ranges, ",") {
			numbers, err := ParseRanges(r)
			if err != nil {
				return nil, err
			}
			from, _, _ := strings.Cut(r, "-")
			for _, n := range numbers {
				out = append(out, fmt.Sprintf("%s%0*d%s", before, len(from), n, after))
			}
		}
	}
	return out, nil
}

// Differences names what a gres.conf says otherwise than the machine does. Cores
// and Links that it leaves out are named where they matter: where GPUs have
// different ones.
func (f *GresFile) Differences(have []GresLine) (out []string) {
	said := map[string]GresLine{}
	for _, l := range f.Lines {
		said[strings.Join(l.Files, ",")] = l
	}
	coresMatter := slices.ContainsFunc(have, func(l GresLine) bool { return !slices.Equal(l.Cores, have[0].Cores) })
	linksMatter := slices.ContainsFunc(have, func(l GresLine) bool { return slices.ContainsFunc(l.Links, func(n int) bool { return n > 0 }) })
	for _, l := range have {
		name := strings.Join(l.Files, ",")
		c, ok := said[name]
		if delete(said, name); !ok {
			out = append(out, name+" is not in it: "+l.String())
			continue
		}
		differ := func(key, theirs, ours string) {
			out = append(out, fmt.Sprintf("%s: it has %s=%s, the machine %s", name, key, orDash(theirs), orDash(ours)))
		}
		if c.Type != "" && !names(c.Type, l) {
			differ("Type", c.Type, l.Type)
		}
		if (len(c.Cores) > 0 || coresMatter) && len(l.Cores) > 0 && !slices.Equal(c.Cores, l.Cores) {
			differ("Cores", Ranges(c.Cores), Ranges(l.Cores))
		}
		if (len(c.Links) > 0 || linksMatter) && len(f.Lines) == len(have) && !slices.Equal(c.Links, l.Links) {
			differ("Links", row(c.Links), row(l.Links))
		}
	}
	for _, l := range f.Lines {
		name := strings.Join(l.Files, ",")
		if _, left := said[name]; left {
			out = append(out, name+" is in it, but not on the machine")
		}
	}
	return out
}

// names says whether a configured type is the device's: ours, or a part of the model as
// Slurm's own detection compares it, in lower case with blanks as underscores.
func names(configured string, l GresLine) bool {
	t := strings.ToLower(configured)
	return t == strings.ToLower(l.Type) ||
		len(l.Files) == 1 && strings.Contains(strings.ReplaceAll(strings.ToLower(l.model), " ", "_"), t)
}
