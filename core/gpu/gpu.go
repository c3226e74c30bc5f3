// SPDX-License-Identifier: Apache-2.0

// Package gpu says what GPUs a machine has, how they are connected and whether
// they are well, as NVML reports it, and writes that down for gres.conf and for a
// NodeManager. It changes nothing: no call of it sets, resets or drains anything.
//
// What NVML does not support on a GPU is a missing value (a nil pointer, an empty
// string or slice), never an error and never a zero.
package gpu

import (
	"regexp"
	"slices"
	"strings"
)

// Machine is one reading of a machine.
type Machine struct {
	Driver string `json:"driver,omitempty"` // nvmlSystemGetDriverVersion
	GPUs   []GPU  `json:"gpus"`             // by index
	Links  []Link `json:"links"`            // of pairs of GPUs that answer, A < B
	Slots  []Slot `json:"slots"`
}

// GPU is one physical GPU.
type GPU struct {
	Index      int       `json:"index"` // in order of PCI bus id: Slurm's device number and YARN's index
	Minor      *int      `json:"minor,omitempty"`
	UUID       string    `json:"uuid,omitempty"`
	Model      string    `json:"model,omitempty"`
	Type       string    `json:"type,omitempty"` // see TypeOf
	MemoryMiB  *int64    `json:"memory_mib,omitempty"`
	Bus        string    `json:"bus,omitempty"` // as sysfs writes it: 0000:07:00.0
	Node       *int      `json:"numa_node,omitempty"`
	CPUs       []int     `json:"cpus,omitempty"`  // nvmlDeviceGetCpuAffinity, as the kernel numbers them
	Cores      []int     `json:"cores,omitempty"` // the same, as gres.conf(5) numbers cores
	MIG        *MIG      `json:"mig,omitempty"`
	ECC        *ECC      `json:"ecc,omitempty"`
	Remapped   *Remapped `json:"remapped_rows,omitempty"`
	Retiring   *bool     `json:"page_retirement_pending,omitempty"` // before Ampere, in place of remapped rows
	Throttle   []string  `json:"throttle,omitempty"`                // why clocks are lowered
	Processes  *int      `json:"processes,omitempty"`               // nvmlDeviceGetComputeRunningProcesses
	UtilPct    *int      `json:"utilisation_pct,omitempty"`         // nvmlDeviceGetUtilizationRates, of time
	Lately     *Lately   `json:"lately,omitempty"`
	NVLinks    []NVLink  `json:"nvlinks,omitempty"`     // the active ones
	Answered   int       `json:"calls_answered"`        // with a value or "not supported"
	CallErrors []Failure `json:"call_errors,omitempty"` // all other calls

	levels map[int]Level // to GPUs of lower index
	lost   bool
	reset  bool
}

// Lately is how busy the GPU was in the last seconds: the samples that the driver has
// kept (nvmlDeviceGetSamples), or else UtilPct.
type Lately struct {
	MeanPct int `json:"mean_pct"`
	PeakPct int `json:"peak_pct"`
}

// MIG is how a GPU is divided, if its model can be.
type MIG struct {
	Enabled   bool       `json:"enabled"`
	Pending   bool       `json:"pending"` // enabled after the next reset
	Instances []Instance `json:"instances,omitempty"`
}

// Instance is one MIG device: a compute instance of a GPU instance.
type Instance struct {
	Index     int      `json:"index"` // may have holes
	UUID      string   `json:"uuid,omitempty"`
	Profile   string   `json:"profile,omitempty"` // 1g.5gb
	MemoryMiB *int64   `json:"memory_mib,omitempty"`
	GPU       *int     `json:"gpu_instance,omitempty"`
	Compute   *int     `json:"compute_instance,omitempty"`
	Files     []string `json:"files,omitempty"` // what a job needs besides the GPU's own file
}

// ECC is error correction of the GPU's memory. The counts are of uncorrectable
// errors: since the driver was loaded, and ever.
type ECC struct {
	Enabled   bool    `json:"enabled"`
	Volatile  *uint64 `json:"uncorrectable_since_load,omitempty"`
	Aggregate *uint64 `json:"uncorrectable_ever,omitempty"`
}

// Remapped counts the rows that the GPU replaced by spare ones
// (nvmlDeviceGetRemappedRows).
type Remapped struct {
	Correctable   int  `json:"correctable"`
	Uncorrectable int  `json:"uncorrectable"`
	Pending       bool `json:"pending"` // at the next reset
	Failed        bool `json:"failed"`  // no spare row was left
}

// NVLink is one active link.
type NVLink struct {
	Number int    `json:"number"`
	Peer   string `json:"peer,omitempty"` // PCI bus id of the other end, if NVML has one
	Switch bool   `json:"switch"`         // the other end is an NVSwitch
}

// Failure is a call that failed for another reason than "not supported".
type Failure struct {
	Call  string `json:"call"`
	Error string `json:"error"`
}

// Responds says whether any call for this GPU was answered.
func (g *GPU) Responds() bool { return g.Answered > 0 && !g.lost }

// Divided says whether the GPU is handed out as MIG instances, not as a whole.
func (g *GPU) Divided() bool { return g.MIG != nil && g.MIG.Enabled }

var (
	// A name such as a100, v100, t4, l40s, gh200, a6000; not sxm4, hbm3 or 80gb.
	modelWord = regexp.MustCompile(`^[a-z]{1,2}[0-9]+[a-z]?$`)
	sizeWord  = regexp.MustCompile(`^[0-9]+gb$`)
	brands    = []string{"nvidia", "mock", "tesla", "quadro", "geforce", "generation", "edition"}
)

// TypeOf shortens what NVML calls a model to a GRES type: "NVIDIA A100-SXM4-40GB"
// is a100, "NVIDIA GeForce RTX 3090" is rtx3090. "" stays "".
func TypeOf(model string) string {
	words := strings.FieldsFunc(strings.ToLower(model), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	if i := slices.IndexFunc(words, modelWord.MatchString); i >= 0 {
		return words[i]
	}
	if i := slices.IndexFunc(words, sizeWord.MatchString); i >= 0 {
		words = words[:i]
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return slices.Contains(brands, w) }), "")
}

// TypeOfInstance is the GRES type of a MIG instance: a100_1g.5gb.
func TypeOfInstance(g *GPU, in *Instance) string {
	return g.Type + "_" + strings.ReplaceAll(in.Profile, "+", ".")
}
