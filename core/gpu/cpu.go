// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
)

// cpu is one hardware thread as the kernel numbers it, and where it sits.
type cpu struct {
	id     int
	socket int // physical_package_id
	node   int // NUMA node; -1 unknown
	first  int // the lowest thread of its core
}

// readCPUs reads sys/devices/system; nil if it is not as expected.
func readCPUs(root fs.FS) (out []cpu) {
	const dir = "sys/devices/system/"
	entries, _ := fs.Glob(root, dir+"cpu/cpu[0-9]*")
	nodes := map[int]int{}
	lists, _ := fs.Glob(root, dir+"node/node[0-9]*/cpulist")
	for _, path := range lists {
		node, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(path, dir+"node/node"), "/cpulist"))
		for _, id := range readList(root, path) {
			nodes[id] = node
		}
	}
	for _, path := range entries {
		id, err := strconv.Atoi(strings.TrimPrefix(path, dir+"cpu/cpu"))
		threads := readList(root, path+"/topology/thread_siblings_list")
		socket := readList(root, path+"/topology/physical_package_id")
		if err != nil || len(threads) == 0 || len(socket) != 1 {
			continue // offline
		}
		c := cpu{id: id, socket: socket[0], node: -1, first: slices.Min(threads)}
		if n, ok := nodes[id]; ok {
			c.node = n
		}
		out = append(out, c)
	}
	return out
}

func readList(root fs.FS, path string) []int {
	text, err := fs.ReadFile(root, path)
	if err != nil {
		return nil
	}
	list, _ := ParseRanges(strings.TrimSpace(string(text)))
	return list
}

// cores is which cores the CPUs of set are on, numbered as gres.conf(5) says, which is as
// "lstopo -l" does: core 0 is the first of the first socket, threads not counted. A
// socket, and a NUMA node in it, comes where its lowest CPU does. nil if the
// topology is unknown.
func cores(topology []cpu, set []int) (out []int) {
	lowest := map[[2]int]int{}
	first := func(level, id int) int {
		if v, ok := lowest[[2]int{level, id}]; ok {
			return v
		}
		return math.MaxInt
	}
	for _, c := range topology {
		lowest[[2]int{0, c.socket}] = min(first(0, c.socket), c.id)
		lowest[[2]int{1, c.node}] = min(first(1, c.node), c.id)
	}
	var order []cpu
	of := map[int]int{}
	for _, c := range topology {
		if of[c.id] = c.first; c.id == c.first {
			order = append(order, c)
		}
	}
	slices.SortFunc(order, func(a, b cpu) int {
		return cmp.Or(cmp.Compare(first(0, a.socket), first(0, b.socket)), cmp.Compare(first(1, a.node), first(1, b.node)), cmp.Compare(a.id, b.id))
	})
	for _, id := range set {
		f, ok := of[id]
		if !ok {
			continue // offline
		}
		out = append(out, slices.IndexFunc(order, func(c cpu) bool { return c.id == f }))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Ranges writes ascending numbers as gres.conf and cpusets do: 0-3,8.
func Ranges(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if j == i {
			parts = append(parts, strconv.Itoa(list[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// rangeMost bounds what a range in a file may name.
const rangeMost = 1 << 16

// ParseRanges reads what Ranges writes.
func ParseRanges(text string) (out []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, is := strings.Cut(strings.TrimSpace(part), "-")
		if !is {
			to = from
		}
		a, bad := strconv.Atoi(from)
		b, worse := strconv.Atoi(to)
		if bad != nil || worse != nil || a < 0 || b < a || b >= rangeMost {
			return nil, fmt.Errorf("%q is no range of numbers", part)
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
