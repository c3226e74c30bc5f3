// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"themis/core/cluster"
)

const clusterForm = `a cluster is 64, 256 or another multiple of 32 (racks as in the paper), 8x4 (8 nodes of 4 GPUs), or a file: CSV with a header name,gpus and, if known, rack,type,cpus,mem_mib; JSON {"nodes": [...]} of the same; slurm.conf or "scontrol show node -o"; Alibaba's node list`

// A rack of the paper's clusters: so many machines of so many GPUs.
var paperRack = []struct{ machines, gpus int }{{6, 4}, {3, 2}, {2, 1}}

const (
	paperGPUs = 32
	nodesMost = 100_000
)

var countForm, gridForm = regexp.MustCompile(`^[0-9]{1,9}$`), regexp.MustCompile(`^([0-9]{1,9})[xX]([0-9]{1,9})$`)

// OpenCluster makes a cluster of
//
//	64, 256  or another multiple of 32 GPUs: the THEMIS paper's racks of 11
//	         machines, r1n1 to r1n11 and so on, six of 4 GPUs, three of 2, two of 1
//	8x4      8 nodes n1 to n8 of 4 GPUs in one rack
//	FILE     a node list that ReadCluster knows
func OpenCluster(spec string) (*Cluster, error) {
	if countForm.MatchString(spec) {
		return paperCluster(spec)
	}
	if m := gridForm.FindStringSubmatch(spec); m != nil {
		return gridCluster(spec, m[1], m[2])
	}
	data, title, err := load(spec)
	var known *Error
	if err != nil && !errors.As(err, &known) {
		err = fmt.Errorf("%w\nhint: %s", err, clusterForm)
	}
	if err != nil {
		return nil, err
	}
	return readCluster(data, spec, title)
}

func paperCluster(spec string) (*Cluster, error) {
	gpus, err := strconv.Atoi(spec)
	if err != nil || gpus < paperGPUs || gpus > gpusMost || gpus%paperGPUs != 0 {
		return nil, fmt.Errorf("cluster %s: must be a multiple of %d, which is a rack of the paper, up to %d\nhint: nodes of one size are, say, 8x4: 8 nodes of 4 GPUs", spec, paperGPUs, gpusMost)
	}
	c := &Cluster{Name: spec}
	for r := 1; r <= gpus/paperGPUs; r++ {
		n := 0
		for _, kind := range paperRack {
			for range kind.machines {
				n++
				c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprintf("r%dn%d", r, n), Rack: fmt.Sprintf("r%d", r), GPUs: []cluster.GPUs{{Total: kind.gpus}}})
			}
		}
	}
	return c, nil
}

func gridCluster(spec, nodes, each string) (*Cluster, error) {
	n, err1 := strconv.Atoi(nodes)
	g, err2 := strconv.Atoi(each)
	if err1 != nil || err2 != nil || n < 1 || g < 1 || n > nodesMost || n*g > gpusMost {
		return nil, fmt.Errorf("cluster %s: must have from 1 to %d nodes and from 1 to %d GPUs\nhint: 8x4 is 8 nodes of 4 GPUs", spec, nodesMost, gpusMost)
	}
	c := &Cluster{Name: spec}
	for i := range n {
		c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprintf("n%d", i+1), Rack: "r1", GPUs: []cluster.GPUs{{Total: g}}})
	}
	return c, nil
}

// ReadCluster reads a node list, whose form it tells by content: our CSV or JSON,
// Alibaba's node list (openb), or slurm.conf, with its topology.conf appended
// where racks matter. Nodes without GPUs are passed over. A node without a rack
// is in none: any two such are apart by the cluster level. A doubled name, and
// any bad row, is an error.
func ReadCluster(r io.Reader, name string) (*Cluster, error) {
	data, _, err := unpack(r, name, "")
	if err != nil {
		return nil, err
	}
	return readCluster(data, name, name)
}

func readCluster(data []byte, file, title string) (*Cluster, error) {
	in := &input{file: file, data: []byte(strings.TrimPrefix(string(data), "\xef\xbb\xbf")), form: clusterForm}
	if err := plain(file, in.data[:min(len(in.data), headMost)]); err != nil {
		err.(*Error).Hint = clusterForm
		return nil, err
	}
	head := strings.TrimSpace(string(in.data[:min(len(in.data), headMost)]))
	first, _, _ := strings.Cut(head, "\n")
	n := nodeList{in: in, Cluster: &Cluster{Name: stem(title)}, seen: map[string]bool{}}
	var err error
	switch {
	case object("nodes")(first, head):
		err = n.json()
	case header(",", "sn", "gpu")(first, head):
		err = in.table(commas(in.data), nil, n.openb)
	case header(",", "name", "gpus")(first, head):
		err = in.table(commas(in.data), nil, n.ours)
	case nodeLines(first, head):
		err = n.slurm()
	default:
		return nil, in.fail(0, clusterForm, "is no node list of a known form; it begins with %s", quote(first))
	}
	if err == nil && len(n.Nodes) == 0 {
		err = in.fail(0, clusterForm, "has no node with GPUs")
	}
	if err != nil {
		return nil, err
	}
	return n.Cluster, nil
}

// nodeList is a cluster that is being read.
type nodeList struct {
	*Cluster
	in    *input
	seen  map[string]bool
	total int
}

// add checks a node and takes it in; errLeft is what table expects of a row that
// made no job.
func (n *nodeList) add(r *row, node cluster.Node, kind string, gpus int) error {
	switch {
	case r.err != nil:
		return r.err
	case node.Name == "":
		return errors.New("the node has no name")
	case n.seen[node.Name]:
		return fmt.Errorf("node %s is there twice", quote(node.Name))
	case gpus < 0 || n.total+gpus > gpusMost || len(n.seen) >= nodesMost:
		return fmt.Errorf("the cluster has more than %d GPUs or %d nodes", gpusMost, nodesMost)
	}
	for _, s := range []string{node.Name, node.Rack, kind} {
		if len(s) > textMost || !printable(s) {
			return fmt.Errorf("%s: must be printable and of at most %d bytes", quote(s), textMost)
		}
	}
	n.seen[node.Name] = true
	if n.total += gpus; gpus > 0 {
		node.GPUs = []cluster.GPUs{{Type: kind, Total: gpus}}
		n.Nodes = append(n.Nodes, node)
	}
	return errLeft
}

func (n *nodeList) ours(r *row) (Job, error) {
	node := cluster.Node{Name: r.text("name"), Rack: r.text("rack")}
	if r.text("cpus") != "" {
		node.CPUs = r.count("cpus")
	}
	if r.text("mem_mib") != "" {
		node.MemMiB = int64(r.count("mem_mib"))
	}
	return Job{}, n.add(r, node, r.text("type"), r.count("gpus"))
}

func (n *nodeList) openb(r *row) (Job, error) {
	node := cluster.Node{Name: r.text("sn")}
	if r.text("cpu_milli") != "" {
		node.CPUs = r.count("cpu_milli") / 1000
	}
	if r.text("memory_mib") != "" {
		node.MemMiB = int64(r.count("memory_mib"))
	}
	return Job{}, n.add(r, node, r.text("model"), r.count("gpu"))
}

func (n *nodeList) json() error {
	all, err := objects(n.in.data, "nodes")
	if err != nil {
		return n.in.fail(0, clusterForm, "%s", err)
	}
	for i, o := range all {
		err := errors.New("is no object")
		if o != nil {
			_, err = n.ours(&row{line: i + 1, cell: cellOf(o)})
		}
		if err != errLeft {
			return n.in.fail(i+1, clusterForm, "%s", err)
		}
	}
	return nil
}
