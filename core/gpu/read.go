// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

var (
	// ErrNoNVML: libnvidia-ml.so.1 cannot be loaded, or finds no driver.
	ErrNoNVML = errors.New("no NVML")
	// ErrInit: NVML is there but does not start.
	ErrInit = errors.New("NVML does not start")
)

// Hung is a call of NVML that did not return in time.
type Hung struct {
	Call string
	GPU  int // -1: of the machine
	Of   time.Duration
}

func (h *Hung) Error() string {
	if h.GPU < 0 {
		return fmt.Sprintf("%s did not return; gave up %v after the start", h.Call, h.Of)
	}
	return fmt.Sprintf("GPU %d: %s did not return; gave up %v after the start", h.GPU, h.Call, h.Of)
}

// DefaultLimit is how long a reading may take.
const DefaultLimit = 10 * time.Second

// Read reads the machine that lib speaks of; root is its file system, of which
// sys/devices/system, sys/bus/pci and proc/driver/nvidia-caps are read. It returns within limit: a
// call that hangs then (an error of type *Hung) is left behind with its
// goroutine and thread, and what was read of the GPUs before it comes with the
// error. The process should then end; if the thread hangs inside the kernel, the
// process cannot either, until the kernel lets it go. Other errors wrap ErrNoNVML or ErrInit.
func Read(lib nvml.Interface, root fs.FS, limit time.Duration) (*Machine, error) {
	r := &reader{lib: lib, root: root, topology: readCPUs(root)}
	done := make(chan error, 1)
	go func() { done <- r.machine() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return r.finish(), err
	case <-timer.C:
		r.mu.Lock()
		hung := &Hung{Call: r.now, GPU: r.at, Of: limit}
		r.mu.Unlock()
		return r.finish(), hung
	}
}

// reader is one reading. Its goroutine may be left behind, so what Read returns
// is taken under mu.
type reader struct {
	lib      nvml.Interface
	root     fs.FS
	topology []cpu
	devices  []nvml.Device // nil: no handle
	gpu      *GPU          // being read

	mu     sync.Mutex
	now    string // the call being made
	at     int    // and the GPU it is made for
	driver string
	read   []GPU
}

// finish is what has been read so far.
func (r *reader) finish() *Machine {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &Machine{Driver: r.driver, GPUs: append([]GPU{}, r.read...)}
	m.Links = links(m.GPUs)
	m.Slots = slots(m.GPUs, m.Links, r.topology)
	return m
}

func (r *reader) machine() error {
	r.begin("nvmlInit", -1)
	switch ret := r.lib.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("%w: libnvidia-ml.so.1 cannot be loaded", ErrNoNVML)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return fmt.Errorf("%w: the NVIDIA driver is not loaded", ErrNoNVML)
	default:
		return fmt.Errorf("%w: %s", ErrInit, said(ret))
	}
	r.begin("nvmlSystemGetDriverVersion", -1)
	if v, ret := r.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		r.mu.Lock()
		r.driver = v
		r.mu.Unlock()
	}
	r.begin("nvmlDeviceGetCount", -1)
	n, ret := r.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("%w: nvmlDeviceGetCount: %s", ErrInit, said(ret))
	}
	gpus := make([]GPU, n)
	r.devices = make([]nvml.Device, n)
	for i := range gpus {
		gpus[i].Index = i
		r.begin("nvmlDeviceGetHandleByIndex", i)
		d, ret := r.lib.DeviceGetHandleByIndex(i)
		if ret == nvml.SUCCESS {
			r.devices[i] = d
		} else {
			gpus[i].fail("nvmlDeviceGetHandleByIndex", ret)
		}
	}
	for i := range gpus {
		if r.gpu = &gpus[i]; r.devices[i] != nil {
			r.identity(r.devices[i])
			r.place(r.devices[i])
			r.health(r.devices[i])
			r.instances(r.devices[i])
			r.connections(r.devices[i])
		}
		r.mu.Lock()
		r.read = append(r.read, gpus[i])
		r.mu.Unlock()
	}
	r.begin("nvmlShutdown", -1)
	r.lib.Shutdown()
	return nil
}

// begin notes which call is made, to name it if it hangs.
func (r *reader) begin(call string, gpu int) {
	r.mu.Lock()
	r.now, r.at = call, gpu
	r.mu.Unlock()
}

// ask makes one call for the GPU being read. A call that the library does not
// have, or the GPU does not support, or that returns one of absent, gives no value.
func ask[T any](r *reader, call string, f func() (T, nvml.Return), absent ...nvml.Return) (T, bool) {
	var none T
	// Calling a function that the library does not have would end the process.
	if r.lib.Extensions().LookupSymbol(call) != nil {
		return none, false
	}
	r.begin(call, r.gpu.Index)
	v, ret := f()
	switch {
	case ret == nvml.SUCCESS:
		r.gpu.Answered++
		return v, true
	case ret == nvml.ERROR_NOT_SUPPORTED, ret == nvml.ERROR_NO_PERMISSION, slices.Contains(absent, ret):
		r.gpu.Answered++
	default:
		r.gpu.fail(call, ret)
	}
	return none, false
}

func (g *GPU) fail(call string, ret nvml.Return) {
	g.CallErrors = append(g.CallErrors, Failure{call, said(ret)})
	g.lost = g.lost || ret == nvml.ERROR_GPU_IS_LOST
	g.reset = g.reset || ret == nvml.ERROR_RESET_REQUIRED
}

// maybe is a pointer to v, or nil if there is none.
func maybe[T any](v T, ok bool) *T {
	if !ok {
		return nil
	}
	return &v
}

func (r *reader) identity(d nvml.Device) {
	g := r.gpu
	g.Minor = maybe(ask(r, "nvmlDeviceGetMinorNumber", d.GetMinorNumber))
	g.UUID, _ = ask(r, "nvmlDeviceGetUUID", d.GetUUID)
	g.Model, _ = ask(r, "nvmlDeviceGetName", d.GetName)
	g.Type = TypeOf(g.Model)
	if m, ok := ask(r, "nvmlDeviceGetMemoryInfo", d.GetMemoryInfo); ok {
		g.MemoryMiB = maybe(int64(m.Total>>20), true)
	}
	if p, ok := ask(r, "nvmlDeviceGetPciInfo", d.GetPciInfo); ok {
		g.Bus = busID(p)
	}
}

// busID writes a PCI bus id as sysfs does; "" if there is none.
func busID(p nvml.PciInfo) string {
	if p.BusId[0] == 0 {
		return ""
	}
	return fmt.Sprintf("%04x:%02x:%02x.0", p.Domain, p.Bus, p.Device)
}

// place reads which CPUs and NUMA node are near. nvmlDeviceGetNumaNodeId is
// something else: the node that the GPU's own memory is, where it is one.
func (r *reader) place(d nvml.Device) {
	g := r.gpu
	cpus := 1
	for _, c := range r.topology {
		cpus = max(cpus, c.id+1)
	}
	if set, ok := ask(r, "nvmlDeviceGetCpuAffinity", func() ([]uint, nvml.Return) { return d.GetCpuAffinity(max(cpus, 1024)) }); ok {
		g.CPUs = members(set)
		g.Cores = cores(r.topology, g.CPUs)
	}
	set, ok := ask(r, "nvmlDeviceGetMemoryAffinity", func() ([]uint, nvml.Return) {
		return d.GetMemoryAffinity(64, nvml.AFFINITY_SCOPE_NODE)
	})
	if nodes := members(set); ok && len(nodes) > 0 {
		g.Node = &nodes[0]
	} else if g.Bus != "" {
		text, err := fs.ReadFile(r.root, "sys/bus/pci/devices/"+g.Bus+"/numa_node")
		if n, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil && n >= 0 {
			g.Node = &n
		}
	}
}

// members lists the bits of a set.
func members(set []uint) (out []int) {
	for i, w := range set {
		for ; w != 0; w &= w - 1 {
			out = append(out, i*bits.UintSize+bits.TrailingZeros(w))
		}
	}
	return out
}

func (r *reader) health(d nvml.Device) {
	g := r.gpu
	if on, ok := ask(r, "nvmlDeviceGetEccMode", func() (nvml.EnableState, nvml.Return) {
		now, _, ret := d.GetEccMode()
		return now, ret
	}); ok {
		g.ECC = &ECC{Enabled: on == nvml.FEATURE_ENABLED}
	}
	if g.ECC != nil && g.ECC.Enabled {
		count := func(c nvml.EccCounterType) *uint64 {
			return maybe(ask(r, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
				return d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, c)
			}))
		}
		g.ECC.Volatile, g.ECC.Aggregate = count(nvml.VOLATILE_ECC), count(nvml.AGGREGATE_ECC)
	}
	g.Remapped = maybe(ask(r, "nvmlDeviceGetRemappedRows", func() (m Remapped, ret nvml.Return) {
		m.Correctable, m.Uncorrectable, m.Pending, m.Failed, ret = d.GetRemappedRows()
		return m, ret
	}))
	if p, ok := ask(r, "nvmlDeviceGetRetiredPagesPendingStatus", d.GetRetiredPagesPendingStatus); ok {
		g.Retiring = maybe(p == nvml.FEATURE_ENABLED, true)
	}
	if why, ok := ask(r, "nvmlDeviceGetCurrentClocksThrottleReasons", d.GetCurrentClocksThrottleReasons); ok {
		g.Throttle = throttle(why)
	}
	if p, ok := ask(r, "nvmlDeviceGetComputeRunningProcesses", d.GetComputeRunningProcesses); ok {
		g.Processes = maybe(len(p), true)
	}
	if u, ok := ask(r, "nvmlDeviceGetUtilizationRates", d.GetUtilizationRates); ok {
		g.UtilPct = maybe(int(u.Gpu), true)
		g.Lately = &Lately{int(u.Gpu), int(u.Gpu)}
	}
	if r.lib.Extensions().LookupSymbol("nvmlDeviceGetSamples") == nil { // its errors say nothing of health
		r.begin("nvmlDeviceGetSamples", g.Index)
		if _, s, ret := d.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 0); ret == nvml.SUCCESS && len(s) > 0 {
			g.Lately = lately(s)
		}
	}
}

// lately adds up samples, each a 32-bit number of per cent in the machine's own order.
func lately(samples []nvml.Sample) *Lately {
	sum, peak := 0, 0
	for _, s := range samples {
		pct := int(min(binary.NativeEndian.Uint32(s.SampleValue[:4]), 100))
		sum, peak = sum+pct, max(peak, pct)
	}
	return &Lately{(sum + len(samples)/2) / len(samples), peak}
}

// throttle names nvmlClocksThrottleReason bits; an idle GPU is not throttled.
func throttle(why uint64) (out []string) {
	for i, name := range []string{"", "clock-setting", "power-cap", "hw-slowdown", "sync-boost", "sw-thermal", "hw-thermal", "power-brake", "display-clock"} {
		if why>>i&1 != 0 && name != "" {
			out = append(out, name)
		}
	}
	return out
}

// instances reads the MIG devices. Their indices have holes where one was destroyed.
func (r *reader) instances(d nvml.Device) {
	type mode struct{ now, pending int }
	m, ok := ask(r, "nvmlDeviceGetMigMode", func() (m mode, ret nvml.Return) {
		m.now, m.pending, ret = d.GetMigMode()
		return m, ret
	})
	if !ok {
		return
	}
	mig := &MIG{Enabled: m.now == nvml.DEVICE_MIG_ENABLE, Pending: m.pending == nvml.DEVICE_MIG_ENABLE}
	r.gpu.MIG = mig
	if !mig.Enabled {
		return
	}
	most, _ := ask(r, "nvmlDeviceGetMaxMigDeviceCount", d.GetMaxMigDeviceCount)
	for i := range most {
		if h, ok := ask(r, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
			return d.GetMigDeviceHandleByIndex(i)
		}, nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT); ok {
			mig.Instances = append(mig.Instances, r.instance(i, h))
		}
	}
}

func (r *reader) instance(i int, h nvml.Device) Instance {
	in := Instance{Index: i}
	in.UUID, _ = ask(r, "nvmlDeviceGetUUID", h.GetUUID)
	if name, ok := ask(r, "nvmlDeviceGetName", h.GetName); ok {
		_, in.Profile, _ = strings.Cut(name, " MIG ")
	}
	if a, ok := ask(r, "nvmlDeviceGetAttributes", h.GetAttributes); ok {
		in.MemoryMiB = maybe(int64(a.MemorySizeMB), true)
		if in.Profile == "" { // as nvidia-smi and Slurm's gpu_nvml.c write it
			in.Profile = fmt.Sprintf("%dg.%dgb", a.GpuInstanceSliceCount, (a.MemorySizeMB+1023)/1024)
		}
	}
	in.GPU = maybe(ask(r, "nvmlDeviceGetGpuInstanceId", h.GetGpuInstanceId))
	in.Compute = maybe(ask(r, "nvmlDeviceGetComputeInstanceId", h.GetComputeInstanceId))
	if r.gpu.Minor != nil && in.GPU != nil && in.Compute != nil {
		at := fmt.Sprintf("gpu%d/gi%d/", *r.gpu.Minor, *in.GPU)
		in.Files = capFiles(r.root, at+"access", at+fmt.Sprintf("ci%d/access", *in.Compute))
	}
	return in
}

// capFiles finds the device files of MIG capabilities in
// /proc/driver/nvidia-caps/mig-minors, whose lines are "gpu0/gi1/ci0/access 13";
// nil unless all are there.
func capFiles(root fs.FS, names ...string) (out []string) {
	text, _ := fs.ReadFile(root, "proc/driver/nvidia-caps/mig-minors")
	minors := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 {
			minors[f[0]] = f[1]
		}
	}
	for _, n := range names {
		if minors[n] == "" {
			return nil
		}
		out = append(out, "/dev/nvidia-caps/nvidia-cap"+minors[n])
	}
	return out
}

// connections reads the active NVLinks, and how far on PCIe the GPUs before are.
func (r *reader) connections(d nvml.Device) {
	g := r.gpu
	for i := range nvml.NVLINK_MAX_LINKS {
		on, ok := ask(r, "nvmlDeviceGetNvLinkState", func() (nvml.EnableState, nvml.Return) { return d.GetNvLinkState(i) }, nvml.ERROR_INVALID_ARGUMENT)
		if !ok {
			break // it has no more links
		}
		if on != nvml.FEATURE_ENABLED {
			continue
		}
		l := NVLink{Number: i}
		if p, ok := ask(r, "nvmlDeviceGetNvLinkRemotePciInfo", func() (nvml.PciInfo, nvml.Return) { return d.GetNvLinkRemotePciInfo(i) }); ok {
			l.Peer = busID(p)
		}
		kind, ok := ask(r, "nvmlDeviceGetNvLinkRemoteDeviceType", func() (nvml.IntNvLinkDeviceType, nvml.Return) { return d.GetNvLinkRemoteDeviceType(i) })
		l.Switch = ok && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH
		g.NVLinks = append(g.NVLinks, l)
	}
	g.levels = map[int]Level{}
	for j, other := range r.devices[:g.Index] {
		if other == nil {
			continue
		}
		// That the other one is lost is not this one's fault.
		if l, ok := ask(r, "nvmlDeviceGetTopologyCommonAncestor", func() (nvml.GpuTopologyLevel, nvml.Return) {
			return d.GetTopologyCommonAncestor(other)
		}, nvml.ERROR_GPU_IS_LOST); ok {
			g.levels[j] = Level(l)
		}
	}
}

// said is what a return code means, without asking the library, which may hang.
func said(ret nvml.Return) string {
	if s := map[nvml.Return]string{
		nvml.ERROR_UNINITIALIZED:           "NVML is not initialised",
		nvml.ERROR_INVALID_ARGUMENT:        "invalid argument",
		nvml.ERROR_NO_PERMISSION:           "no permission",
		nvml.ERROR_NOT_FOUND:               "not found",
		nvml.ERROR_INSUFFICIENT_POWER:      "a power cable is not attached",
		nvml.ERROR_TIMEOUT:                 "timeout",
		nvml.ERROR_IRQ_ISSUE:               "interrupts do not arrive",
		nvml.ERROR_CORRUPTED_INFOROM:       "the infoROM is corrupted",
		nvml.ERROR_GPU_IS_LOST:             "GPU is lost: it has fallen off the bus or is inaccessible",
		nvml.ERROR_RESET_REQUIRED:          "the GPU requires a reset",
		nvml.ERROR_OPERATING_SYSTEM:        "the operating system refused",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "driver and library have different versions",
		nvml.ERROR_IN_USE:                  "in use",
		nvml.ERROR_MEMORY:                  "out of memory",
		nvml.ERROR_NO_DATA:                 "no data",
		nvml.ERROR_UNKNOWN:                 "unknown error",
	}[ret]; s != "" {
		return s
	}
	return fmt.Sprintf("NVML error %d", int32(ret))
}
