// SPDX-License-Identifier: Apache-2.0

// Command cgo is built as libthemis.so, the C ABI of themis.h: it copies C
// structures to bridge messages and back, and decides nothing. Nothing that
// goes wrong here may reach the host: every exported function recovers.
package main

/*
#include <stdlib.h>
#include <string.h>
#define THEMIS_CONST
#include "themis.h"

static void themis_call_log(void (*log)(int, const char *), int level, const char *line) { log(level, line); }
*/
import "C"

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"themis/bridge"
	"themis/bridge/pb"
)

var (
	mu     sync.Mutex // guards client and its opening and closing
	client *bridge.Client
)

func main() {}

func current() *bridge.Client {
	mu.Lock()
	defer mu.Unlock()
	return client
}

//export themis_abi
func themis_abi() C.uint32_t { return C.THEMIS_ABI }

//export themis_open
func themis_open(o *C.themis_options, errBuf *C.char, errLen C.uint32_t) (rc C.int) {
	defer guard(&rc, errBuf, errLen)
	mu.Lock()
	defer mu.Unlock()
	if client != nil {
		return fail(errBuf, errLen, "already open")
	}
	opts := bridge.Options{
		Host: C.GoString(o.host), Cluster: C.GoString(o.cluster), Config: C.GoString(o.config),
		StateDir: C.GoString(o.state_dir), Binary: C.GoString(o.binary), Socket: C.GoString(o.socket),
		Owner: uint32(o.owner_uid),
	}
	if log := o.log; log != nil {
		opts.Log = func(level bridge.Level, line string) {
			text := C.CString(line)
			C.themis_call_log(log, C.int(level), text)
			C.free(unsafe.Pointer(text))
		}
	}
	c, err := bridge.NewClient(opts)
	if err != nil {
		return fail(errBuf, errLen, err.Error())
	}
	client = c
	return 0
}

//export themis_observe
func themis_observe(s *C.themis_snapshot) (rc C.int) {
	defer guard(&rc, nil, 0)
	c := current()
	if c == nil {
		return -1
	}
	c.Observe(snapshot(s))
	return 0
}

//export themis_observe_message
func themis_observe_message(message unsafe.Pointer, n C.uint32_t) (rc C.int) {
	defer guard(&rc, nil, 0)
	c := current()
	s := &pb.Snapshot{}
	if c == nil || proto.Unmarshal(C.GoBytes(message, C.int(n)), s) != nil {
		return -1
	}
	c.Observe(s)
	return 0
}

//export themis_latest_message
func themis_latest_message(seen C.uint64_t, n *C.uint32_t) (message unsafe.Pointer) {
	defer func() {
		if recover() != nil {
			message = nil
		}
	}()
	c := current()
	if c == nil {
		return nil
	}
	latest := c.Latest()
	if latest == nil || latest.Seq == uint64(seen) {
		return nil
	}
	raw, err := proto.Marshal(latest)
	if err != nil {
		return nil
	}
	*n = C.uint32_t(len(raw))
	return C.CBytes(raw)
}

//export themis_free_message
func themis_free_message(message unsafe.Pointer) { C.free(message) }

//export themis_latest
func themis_latest(seen C.uint64_t) (d *C.themis_directives) {
	defer func() {
		if recover() != nil {
			d = nil
		}
	}()
	c := current()
	if c == nil {
		return nil
	}
	latest := c.Latest()
	if latest == nil || latest.Seq == uint64(seen) {
		return nil
	}
	return directives(latest)
}

//export themis_pulse
func themis_pulse(out *C.themis_health) {
	defer func() { _ = recover() }()
	*out = C.themis_health{fallback: 1}
	if c := current(); c != nil {
		p := c.Pulse()
		*out = C.themis_health{connected: flag(p.Connected), fallback: flag(p.Fallback), silent_ms: C.uint64_t(p.Silent.Milliseconds())}
	}
}

//export themis_hint
func themis_hint(comment *C.char, errBuf *C.char, errLen C.uint32_t) (rc C.int) {
	defer guard(&rc, errBuf, errLen)
	if _, err := bridge.ParseHint(C.GoString(comment)); err != nil {
		return fail(errBuf, errLen, err.Error())
	}
	return 0
}

//export themis_close
func themis_close() {
	defer func() { _ = recover() }()
	mu.Lock()
	c := client
	client = nil
	mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// guard turns a panic into the failure value.
func guard(rc *C.int, errBuf *C.char, errLen C.uint32_t) {
	if r := recover(); r != nil {
		*rc = fail(errBuf, errLen, fmt.Sprintf("panic: %v", r))
	}
}

func fail(buf *C.char, n C.uint32_t, message string) C.int {
	if buf == nil || n == 0 {
		return -1
	}
	message = strings.ReplaceAll(message, "\x00", "?")
	if len(message) >= int(n) {
		message = message[:n-1]
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(buf)), int(n))
	copy(out, message)
	out[len(message)] = 0
	return -1
}

func flag(b bool) C.uint32_t {
	if b {
		return 1
	}
	return 0
}

// text copies a C string as valid UTF-8, which protobuf demands.
func text(s *C.char) string {
	if s == nil {
		return ""
	}
	return strings.ToValidUTF8(C.GoString(s), "?")
}

func snapshot(s *C.themis_snapshot) *pb.Snapshot {
	out := &pb.Snapshot{NowS: int64(s.now_s), PrivateJobs: s.private_jobs != 0}
	for _, n := range unsafe.Slice(s.nodes, s.n_nodes) {
		node := &pb.Node{Name: text(n.name), Rack: text(n.rack), State: pb.Node_State(n.state),
			Cpus: uint32(n.cpus), CpusUsed: uint32(n.cpus_used), MemMib: uint64(n.mem_mib), MemUsedMib: uint64(n.mem_used_mib),
			Exclusive: n.exclusive != 0, Why: text(n.why), Extra: text(n.extra)}
		for _, g := range unsafe.Slice(n.gpus, n.n_gpus) {
			node.Gpus = append(node.Gpus, &pb.GPUs{Type: text(g._type), Total: uint32(g.total), Used: uint32(g.used)})
		}
		for _, g := range unsafe.Slice(n.slots, n.n_slots) {
			node.Slots = append(node.Slots, &pb.GPUs{Total: uint32(g.total), Used: uint32(g.used)})
		}
		out.Nodes = append(out.Nodes, node)
	}
	for i := range unsafe.Slice(s.jobs, s.n_jobs) {
		out.Jobs = append(out.Jobs, job(&unsafe.Slice(s.jobs, s.n_jobs)[i], out.Nodes))
	}
	for _, h := range unsafe.Slice(s.hooks, s.n_hooks) {
		out.Hooks = append(out.Hooks, &pb.Hook{Name: text(h.name), Calls: uint64(h.calls), TotalNs: uint64(h.total_ns), MaxNs: uint64(h.max_ns)})
	}
	return out
}

// number reads a count that may be THEMIS_NONE.
func number(n C.uint32_t) uint32 {
	if n == C.THEMIS_NONE {
		return 0
	}
	return uint32(n)
}

func job(j *C.themis_job, nodes []*pb.Node) *pb.Job {
	out := &pb.Job{
		Id: jobID(uint32(j.id), uint32(j.task)), Record: uint32(j.record), Uid: uint32(j.uid),
		User: text(j.user), Account: text(j.account), Partition: text(j.partition), Name: text(j.name), Comment: text(j.comment),
		Share: float64(j.share), State: pb.Job_State(j.state), Outcome: pb.Job_Outcome(j.outcome), Blocked: text(j.blocked), BlockedGuess: j.blocked_guess != 0,
		SubmitS: int64(j.submit_s), EligibleS: int64(j.eligible_s), StartS: int64(j.start_s), EndS: int64(j.end_s),
		LimitS: number(j.limit_s), Restarts: uint32(j.restarts), Requeueable: j.requeueable != 0,
		NodesMin: uint32(j.nodes_min), NodesMax: number(j.nodes_max), GpusPerNode: uint32(j.gpus_per_node), Gpus: uint32(j.gpus),
		GpuType: text(j.gpu_type), CpusPerNode: uint32(j.cpus_per_node), Cpus: uint32(j.cpus), CpusPerGpu: uint32(j.cpus_per_gpu),
		MemPerNodeMib: uint64(j.mem_per_node_mib), MemPerCpuMib: uint64(j.mem_per_cpu_mib), MemPerGpuMib: uint64(j.mem_per_gpu_mib),
		Exclusive: j.exclusive != 0, MoreTasks: uint32(j.more_tasks), AnyNode: j.n_eligible == C.THEMIS_NONE,
	}
	if j.gang != 0 {
		out.Gang = fmt.Sprint(uint32(j.gang))
	}
	if j.task != C.THEMIS_NONE {
		out.Array = fmt.Sprint(uint32(j.id))
	}
	if !out.AnyNode {
		for _, i := range unsafe.Slice(j.eligible, j.n_eligible) {
			out.Eligible = append(out.Eligible, uint32(i))
		}
	}
	for _, i := range unsafe.Slice(j.required, j.n_required) {
		out.Required = append(out.Required, uint32(i))
	}
	for i, node := range unsafe.Slice(j.on, j.n_on) {
		share := &pb.Share{Node: uint32(node), Gpus: uint32(unsafe.Slice(j.on_gpus, j.n_on)[i])}
		if j.on_slots != nil && int(node) < len(nodes) && len(nodes[node].Slots) <= C.THEMIS_SLOTS {
			slots := unsafe.Slice((*byte)(unsafe.Pointer(j.on_slots)), j.n_on*C.THEMIS_SLOTS)
			share.Slots = slices.Clone(slots[i*C.THEMIS_SLOTS:][:len(nodes[node].Slots)])
		}
		if j.on_devices != nil {
			share.Devices = uint64(unsafe.Slice(j.on_devices, j.n_on)[i])
		}
		out.On = append(out.On, share)
	}
	return out
}
