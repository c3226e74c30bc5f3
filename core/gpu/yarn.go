// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
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
