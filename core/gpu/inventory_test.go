// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing/fstest"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxb200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

// inventory is a machine made of go-nvml's mocks. What a line of its text does not
// say is not supported. The lines, where WHICH is a range of indices (tests/fakenvml
// reads most of them too):
//
//	driver VERSION
//	sockets SOCKETS CORES THREADS    of the machine, second threads numbered last
//	cap gpu0/gi1/access 12           a line of mig-minors
//	init ERROR                       nvmlInit fails
//	gpus N                           with minor = index, a UUID and a bus id
//	WHICH name|minor|uuid|memory|bus|node|cpus|ecc|uncorrected|remapped|retiring|throttle|processes|util VALUE
//	WHICH samples PCT,PCT,...        of utilisation, as the driver keeps them
//	WHICH nvlink LINKS PEER|switch|elsewhere
//	WHICH sysnode N                  the NUMA node in sysfs
//	WHICH level PEERS LEVEL          a number of nvmlGpuTopologyLevel_t, both ways
//	WHICH mig on|off
//	WHICH instance INDEX GI CI MIB PROFILE
//	WHICH handle|every ERROR         no handle, or every call fails
//	WHICH call NAME ERROR|hang
type inventory struct {
	lib     nvml.Interface
	root    fstest.MapFS
	driver  string
	init    nvml.Return
	handles []nvml.Device
	mocks   []*mock.Device
	refused map[int]nvml.Return
	levels  map[[2]int]nvml.GpuTopologyLevel
	links   []map[int]string
	migs    []map[int]nvml.Device
	last    []func() // what overrides all else
}

var servers = map[string]func() *server.Server{"dgxa100": dgxa100.New, "dgxh100": dgxh100.New, "dgxh200": dgxh200.New, "dgxb200": dgxb200.New}

var returns = map[string]nvml.Return{
	"lost": nvml.ERROR_GPU_IS_LOST, "unknown": nvml.ERROR_UNKNOWN, "timeout": nvml.ERROR_TIMEOUT, "reset": nvml.ERROR_RESET_REQUIRED,
	"mismatch": nvml.ERROR_LIB_RM_VERSION_MISMATCH, "no-driver": nvml.ERROR_DRIVER_NOT_LOADED, "no-library": nvml.ERROR_LIBRARY_NOT_FOUND,
}

func newInventory(base, text string) (*inventory, error) {
	v := &inventory{root: fstest.MapFS{}, driver: "550.54.15", refused: map[int]nvml.Return{}, levels: map[[2]int]nvml.GpuTopologyLevel{}}
	if base != "" {
		for _, d := range servers[base]().Devices {
			v.add(d, &d.(*server.Device).Device)
		}
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 {
			if err := v.line(f); err != nil {
				return nil, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
			}
		}
	}
	for _, override := range v.last {
		override()
	}
	for _, m := range v.mocks {
		complete(m, nvml.ERROR_NOT_SUPPORTED, false)
	}
	v.lib = &mock.Interface{
		InitFunc:                   func() nvml.Return { return v.init },
		ShutdownFunc:               func() nvml.Return { return nvml.SUCCESS },
		SystemGetDriverVersionFunc: func() (string, nvml.Return) { return v.driver, nvml.SUCCESS },
		DeviceGetCountFunc:         func() (int, nvml.Return) { return len(v.handles), nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) { return v.handles[i], v.refused[i] },
		ExtensionsFunc: func() nvml.ExtendedInterface {
			return &mock.ExtendedInterface{LookupSymbolFunc: func(string) error { return nil }}
		},
	}
	return v, nil
}

func (v *inventory) add(d nvml.Device, m *mock.Device) {
	i := len(v.handles)
	v.handles, v.mocks = append(v.handles, d), append(v.mocks, m)
	v.links, v.migs = append(v.links, nil), append(v.migs, map[int]nvml.Device{})
	m.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return pci(0, uint32(16+i)), nvml.SUCCESS }
	m.GetTopologyCommonAncestorFunc = func(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
		for j, h := range v.handles {
			if l, ok := v.levels[[2]int{i, j}]; ok && h == other {
				return l, nvml.SUCCESS
			}
		}
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
}

func pci(domain, bus uint32) (p nvml.PciInfo) {
	p.Domain, p.Bus, p.BusId[0] = domain, bus, '0'
	return p
}

// complete gives a mock's unset functions, or all, one result; with ret < 0 they
// never return.
func complete(m any, ret nvml.Return, all bool) {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; strings.HasSuffix(name, "Func") && (all || v.Field(i).IsNil()) {
			override(v.Field(i), ret)
		}
	}
}

func override(f reflect.Value, ret nvml.Return) {
	f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) (out []reflect.Value) {
		if ret < 0 {
			select {}
		}
		for i := range f.Type().NumOut() {
			out = append(out, reflect.Zero(f.Type().Out(i)))
		}
		if n := len(out) - 1; n >= 0 && out[n].Type() == reflect.TypeFor[nvml.Return]() {
			out[n] = reflect.ValueOf(ret)
		}
		return out
	}))
}

func (v *inventory) line(f []string) error {
	switch f[0] {
	case "#":
		return nil
	case "driver":
		v.driver = f[1]
		return nil
	case "init":
		v.init = returns[f[1]]
		return nil
	case "cap":
		const path = "proc/driver/nvidia-caps/mig-minors"
		if v.root[path] == nil {
			v.root[path] = &fstest.MapFile{}
		}
		v.root[path].Data = fmt.Appendf(v.root[path].Data, "%s %s\n", f[1], f[2])
		return nil
	case "sockets":
		s, c, t := number(f[1]), number(f[2]), number(f[3])
		sockets(v.root, s, c, t)
		return nil
	case "gpus":
		for range number(f[1]) {
			m := &mock.Device{}
			i := len(v.handles)
			v.add(m, m)
			m.GetMinorNumberFunc = func() (int, nvml.Return) { return i, nvml.SUCCESS }
			m.GetUUIDFunc = func() (string, nvml.Return) { return fmt.Sprintf("GPU-%d", i), nvml.SUCCESS }
		}
		return nil
	}
	which, err := ParseRanges(f[0])
	if err != nil || len(f) < 3 {
		return fmt.Errorf("not understood")
	}
	for _, i := range which {
		if err := v.set(i, f[1], f[2:]); err != nil {
			return err
		}
	}
	return nil
}

func number(s string) int { n, _ := strconv.Atoi(s); return n }

// sockets writes the topology of s sockets, one NUMA node each.
func sockets(root fstest.MapFS, s, c, t int) {
	for socket := range s {
		var all []string
		for core := range c {
			var threads []string
			for thread := range t {
				threads = append(threads, strconv.Itoa(socket*c+core+thread*s*c))
			}
			all = append(all, threads...)
			for _, id := range threads {
				at := "sys/devices/system/cpu/cpu" + id + "/topology/"
				root[at+"thread_siblings_list"] = &fstest.MapFile{Data: []byte(strings.Join(threads, ",") + "\n")}
				root[at+"physical_package_id"] = &fstest.MapFile{Data: []byte(strconv.Itoa(socket) + "\n")}
			}
		}
		root[fmt.Sprintf("sys/devices/system/node/node%d/cpulist", socket)] = &fstest.MapFile{Data: []byte(strings.Join(all, ",") + "\n")}
	}
}

func bitset(members []int) []uint {
	out := make([]uint, 16)
	for _, m := range members {
		out[m/64] |= 1 << (m % 64)
	}
	return out
}

func (v *inventory) set(i int, key string, value []string) error {
	m := v.mocks[i]
	text := strings.Join(value, " ")
	n := number(text)
	state := nvml.EnableState(0)
	if text == "on" {
		state = nvml.FEATURE_ENABLED
	}
	switch key {
	case "name":
		m.GetNameFunc = func() (string, nvml.Return) { return text, nvml.SUCCESS }
	case "minor":
		m.GetMinorNumberFunc = func() (int, nvml.Return) { return n, nvml.SUCCESS }
	case "uuid":
		m.GetUUIDFunc = func() (string, nvml.Return) { return text, nvml.SUCCESS }
	case "memory":
		m.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: uint64(n) << 20}, nvml.SUCCESS }
	case "bus":
		var p [4]uint32
		if _, err := fmt.Sscanf(text, "%x:%x:%x.%d", &p[0], &p[1], &p[2], &p[3]); err != nil {
			return err
		}
		m.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return pci(p[0], p[1]), nvml.SUCCESS }
	case "sysnode":
		v.root[fmt.Sprintf("sys/bus/pci/devices/0000:%02x:00.0/numa_node", 16+i)] = &fstest.MapFile{Data: []byte(text + "\n")}
	case "node":
		m.GetMemoryAffinityFunc = func(int, nvml.AffinityScope) ([]uint, nvml.Return) { return bitset([]int{n}), nvml.SUCCESS }
	case "cpus":
		set, err := ParseRanges(text)
		if err != nil {
			return err
		}
		m.GetCpuAffinityFunc = func(int) ([]uint, nvml.Return) { return bitset(set), nvml.SUCCESS }
	case "ecc":
		m.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) { return state, state, nvml.SUCCESS }
	case "uncorrected":
		m.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return uint64(n), nvml.SUCCESS }
	case "remapped":
		m.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) {
			return number(value[0]), number(value[1]), value[2] == "1", value[3] == "1", nvml.SUCCESS
		}
	case "retiring":
		m.GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return nvml.EnableState(n), nvml.SUCCESS }
	case "throttle":
		m.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return uint64(n), nvml.SUCCESS }
	case "processes":
		m.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return make([]nvml.ProcessInfo, n), nvml.SUCCESS }
	case "util":
		m.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: uint32(n)}, nvml.SUCCESS }
	case "samples":
		var samples []nvml.Sample
		for _, pct := range strings.Split(text, ",") {
			var s nvml.Sample
			binary.NativeEndian.PutUint32(s.SampleValue[:], uint32(number(pct)))
			samples = append(samples, s)
		}
		m.GetSamplesFunc = func(nvml.SamplingType, uint64) (nvml.ValueType, []nvml.Sample, nvml.Return) {
			return nvml.VALUE_TYPE_UNSIGNED_INT, samples, nvml.SUCCESS
		}
	case "mig":
		m.GetMigModeFunc = func() (int, int, nvml.Return) { return int(state), int(state), nvml.SUCCESS }
		m.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
		m.GetMigDeviceHandleByIndexFunc = func(j int) (nvml.Device, nvml.Return) {
			if d := v.migs[i][j]; d != nil {
				return d, nvml.SUCCESS
			}
			return nil, nvml.ERROR_NOT_FOUND
		}
	case "instance":
		v.migs[i][number(value[0])] = migDevice(i, value)
	case "nvlink":
		return v.nvlink(i, value[0], value[1])
	case "level":
		peers, err := ParseRanges(value[0])
		for _, j := range peers {
			v.levels[[2]int{i, j}], v.levels[[2]int{j, i}] = nvml.GpuTopologyLevel(number(value[1])), nvml.GpuTopologyLevel(number(value[1]))
		}
		return err
	case "handle":
		v.refused[i] = returns[text]
	case "every":
		v.last = append(v.last, func() { complete(m, returns[text], true) })
	case "call":
		ret := nvml.Return(-1)
		if value[1] != "hang" {
			ret = returns[value[1]]
		}
		f := reflect.ValueOf(m).Elem().FieldByName(strings.TrimPrefix(value[0], "nvmlDevice") + "Func")
		v.last = append(v.last, func() { override(f, ret) })
	default:
		return fmt.Errorf("no such key")
	}
	return nil
}

func (v *inventory) nvlink(i int, list, peer string) error {
	numbers, err := ParseRanges(list)
	if v.links[i] == nil {
		v.links[i] = map[int]string{}
	}
	for _, n := range numbers {
		v.links[i][n] = peer
	}
	m := v.mocks[i]
	m.GetNvLinkStateFunc = func(n int) (nvml.EnableState, nvml.Return) {
		if n >= 18 {
			return 0, nvml.ERROR_INVALID_ARGUMENT
		}
		if v.links[i][n] != "" {
			return nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
		return nvml.FEATURE_DISABLED, nvml.SUCCESS
	}
	m.GetNvLinkRemoteDeviceTypeFunc = func(n int) (nvml.IntNvLinkDeviceType, nvml.Return) {
		if v.links[i][n] == "switch" {
			return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
		}
		return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
	}
	m.GetNvLinkRemotePciInfoFunc = func(n int) (nvml.PciInfo, nvml.Return) {
		if j, err := strconv.Atoi(v.links[i][n]); err == nil {
			return v.mocks[j].GetPciInfoFunc()
		}
		return pci(0, 0xc0), nvml.SUCCESS
	}
	return err
}

func migDevice(i int, value []string) *mock.Device {
	d := &mock.Device{}
	gi, ci, mib := number(value[1]), number(value[2]), number(value[3])
	d.GetUUIDFunc = func() (string, nvml.Return) { return fmt.Sprintf("MIG-%d-%s", i, value[0]), nvml.SUCCESS }
	d.GetNameFunc = func() (string, nvml.Return) { return "NVIDIA A100-SXM4-40GB MIG " + value[4], nvml.SUCCESS }
	d.GetAttributesFunc = func() (nvml.DeviceAttributes, nvml.Return) {
		return nvml.DeviceAttributes{MemorySizeMB: uint64(mib)}, nvml.SUCCESS
	}
	d.GetGpuInstanceIdFunc = func() (int, nvml.Return) { return gi, nvml.SUCCESS }
	d.GetComputeInstanceIdFunc = func() (int, nvml.Return) { return ci, nvml.SUCCESS }
	complete(d, nvml.ERROR_NOT_SUPPORTED, false)
	return d
}
