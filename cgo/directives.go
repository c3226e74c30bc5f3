// SPDX-License-Identifier: Apache-2.0

package main

/*
#include <stdlib.h>
#define THEMIS_CONST
#include "themis.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"themis/bridge/pb"
)

// jobID names a job as Slurm's commands do: 123, or 123_4 for an array task.
func jobID(id, task uint32) string {
	if task == C.THEMIS_NONE {
		return strconv.FormatUint(uint64(id), 10)
	}
	return fmt.Sprintf("%d_%d", id, task)
}

// parseJobID is jobID's inverse; ok is false for a name of another host.
func parseJobID(name string) (id, task C.uint32_t, ok bool) {
	first, second, array := strings.Cut(name, "_")
	n, err := strconv.ParseUint(first, 10, 32)
	if err != nil {
		return 0, 0, false
	}
	if !array {
		return C.uint32_t(n), C.THEMIS_NONE, true
	}
	t, err := strconv.ParseUint(second, 10, 32)
	return C.uint32_t(n), C.uint32_t(t), err == nil
}

// alloc makes a zeroed C array. An empty one has no memory.
func alloc[T any](n int) []T {
	if n == 0 {
		return nil
	}
	var t T
	return unsafe.Slice((*T)(C.calloc(C.size_t(n), C.size_t(unsafe.Sizeof(t)))), n)
}

// directives copies to C memory, released by themis_free.
func directives(in *pb.Directives) *C.themis_directives {
	d := &alloc[C.themis_directives](1)[0]
	d.seq, d.tick_ms = C.uint64_t(in.Seq), C.uint32_t(in.TickMs)
	grants := alloc[C.themis_grant](len(in.Grants))
	for _, g := range in.Grants {
		id, task, ok := parseJobID(g.Job)
		if !ok {
			continue
		}
		nodes := alloc[*C.char](len(g.Nodes))
		for i, n := range g.Nodes {
			nodes[i] = C.CString(n)
		}
		var slots *C.uint8_t
		if len(g.Slots) == len(g.Nodes)*C.THEMIS_SLOTS && len(g.Slots) > 0 {
			slots = (*C.uint8_t)(C.CBytes(g.Slots))
		}
		grants[d.n_grants] = C.themis_grant{slots: slots, lease: C.uint64_t(g.Lease), id: id, task: task, order: C.uint32_t(g.Order),
			anywhere: flag(g.Anywhere), nodes: unsafe.SliceData(nodes), n_nodes: C.uint32_t(len(nodes))}
		d.n_grants++
	}
	d.grants = unsafe.SliceData(grants)
	reclaims := alloc[C.themis_reclaim](len(in.Reclaims))
	for _, r := range in.Reclaims {
		if id, task, ok := parseJobID(r.Job); ok {
			phase := C.uint32_t(C.THEMIS_RECLAIM_WARN)
			if r.Requeue {
				phase = C.THEMIS_RECLAIM_REQUEUE
			}
			reclaims[d.n_reclaims] = C.themis_reclaim{lease: C.uint64_t(r.Lease), id: id, task: task, phase: phase, why: C.CString(r.Why)}
			d.n_reclaims++
		}
	}
	d.reclaims = unsafe.SliceData(reclaims)
	d.waits, d.n_waits = sentences(in.Waits)
	d.notes, d.n_notes = sentences(in.Notes)
	return d
}

func sentences(in []*pb.Wait) (*C.themis_wait, C.uint32_t) {
	out := alloc[C.themis_wait](len(in))
	n := 0
	for _, w := range in {
		if id, task, ok := parseJobID(w.Job); ok {
			out[n] = C.themis_wait{id: id, task: task, why: C.CString(w.Why)}
			n++
		}
	}
	return unsafe.SliceData(out), C.uint32_t(n)
}

//export themis_free
func themis_free(d *C.themis_directives) {
	defer func() { _ = recover() }()
	if d == nil {
		return
	}
	for _, g := range unsafe.Slice(d.grants, d.n_grants) {
		for _, n := range unsafe.Slice(g.nodes, g.n_nodes) {
			C.free(unsafe.Pointer(n))
		}
		C.free(unsafe.Pointer(g.nodes))
		C.free(unsafe.Pointer(g.slots))
	}
	for _, r := range unsafe.Slice(d.reclaims, d.n_reclaims) {
		C.free(unsafe.Pointer(r.why))
	}
	for _, w := range slices.Concat(unsafe.Slice(d.waits, d.n_waits), unsafe.Slice(d.notes, d.n_notes)) {
		C.free(unsafe.Pointer(w.why))
	}
	C.free(unsafe.Pointer(d.grants))
	C.free(unsafe.Pointer(d.reclaims))
	C.free(unsafe.Pointer(d.waits))
	C.free(unsafe.Pointer(d.notes))
	C.free(unsafe.Pointer(d))
}
