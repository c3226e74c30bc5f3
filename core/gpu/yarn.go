// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// NodeResources writes what a NodeManager's node-resources.xml and yarn-site.xml
// need: how many GPUs there are, and which (index:minor, as Hadoop's GpuDiscoverer
// reads allowed-gpu-devices). A GPU that is divided by MIG, or does not respond, is
// not one of them.
func NodeResources(m *Machine) string {
	var allowed, notes []string
	for i := range m.GPUs {
		g := &m.GPUs[i]
		switch {
		case g.nameless() != "":
			notes = append(notes, fmt.Sprintf("GPU %d is left out: %s", g.Index, g.nameless()))
		case g.Divided():
			notes = append(notes, fmt.Sprintf("GPU %d is left out: it is divided into %d MIG instances, which are no whole GPUs", g.Index, len(g.MIG.Instances)))
		default:
			allowed = append(allowed, fmt.Sprintf("%d:%d", g.Index, *g.Minor))
		}
	}
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintf(&b, "<!-- %s -->\n", n)
	}
	property := func(name, value string) {
		fmt.Fprintf(&b, "<property><name>%s</name><value>%s</value></property>\n", name, value)
	}
	b.WriteString("<!-- node-resources.xml -->\n")
	property("yarn.nodemanager.resource-type.yarn.io/gpu", fmt.Sprint(len(allowed)))
	b.WriteString("<!-- yarn-site.xml -->\n")
	property("yarn.nodemanager.resource-plugins", "yarn.io/gpu")
	property("yarn.nodemanager.resource-plugins.gpu.allowed-gpu-devices", strings.Join(allowed, ","))
	return b.String()
}

// NodeAttributes writes what a NodeManager's node-attribute script prints
// (ScriptBasedNodeAttributesProvider): the type of the machine's GPUs. Where they are of
// several, or some are divided, none is: a ResourceManager does not know which of them a
// container gets.
func NodeAttributes(m *Machine) string {
	types := map[string]bool{}
	for i := range m.GPUs {
		if g := &m.GPUs[i]; g.Divided() {
			return "# some GPUs are divided into MIG instances: no type is told\n"
		} else if g.nameless() == "" {
			types[g.Type] = true
		}
	}
	all := slices.Sorted(maps.Keys(types))
	switch {
	case len(all) > 1:
		return "# GPUs of several types: " + strings.Join(all, ", ") + "; none is told\n"
	case len(all) == 0 || all[0] == "":
		return "# no GPU whose type is known\n"
	}
	return "NODE_ATTRIBUTE:gpu-type,STRING," + all[0] + "\n"
}
