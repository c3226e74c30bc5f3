// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"themis/core/sim"
)

// schema is the subset of JSON Schema 2020-12 that result.schema.json uses:
// Decode refuses any other keyword.
type schema struct {
	Schema      string             `json:"$schema"`
	Ref         string             `json:"$ref"`
	Defs        map[string]*schema `json:"$defs"`
	Title       string             `json:"title"`
	Description string             `json:"description"`
	Type        string             `json:"type"`
	Properties  map[string]*schema `json:"properties"`
	Required    []string           `json:"required"`
	Additional  *bool              `json:"additionalProperties"`
	Items       *schema            `json:"items"`
	Enum        []string           `json:"enum"`
}

func readSchema(t *testing.T) *schema {
	t.Helper()
	f, err := os.Open("result.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	var s schema
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	return &s
}

func (root *schema) at(s *schema) *schema {
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		return root.Defs[name]
	}
	return s
}

// check says where v, decoded with UseNumber, isn't what s describes.
func (root *schema) check(s *schema, v any, path string) (bad []string) {
	s = root.at(s)
	wrong := func(f string, a ...any) { bad = append(bad, path+": "+fmt.Sprintf(f, a...)) }
	switch x := v.(type) {
	case map[string]any:
		if s.Type != "object" {
			wrong("an object, not %s", s.Type)
			return
		}
		for _, k := range s.Required {
			if _, ok := x[k]; !ok {
				wrong("no %s", k)
			}
		}
		for k, e := range x {
			if p := s.Properties[k]; p != nil {
				bad = append(bad, root.check(p, e, path+"."+k)...)
			} else if s.Additional != nil && !*s.Additional {
				wrong("%s isn't described", k)
			}
		}
	case []any:
		if s.Type != "array" {
			wrong("an array, not %s", s.Type)
			return
		}
		for i, e := range x {
			bad = append(bad, root.check(s.Items, e, fmt.Sprintf("%s[%d]", path, i))...)
		}
	case json.Number:
		if s.Type != "number" && (s.Type != "integer" || strings.ContainsAny(x.String(), ".eE")) {
			wrong("%s, not %s", x, s.Type)
		}
	case string:
		if s.Type != "string" || s.Enum != nil && !slices.Contains(s.Enum, x) {
			wrong("%q, not %s %q", x, s.Type, s.Enum)
		}
	default:
		wrong("%v, not %s", v, s.Type)
	}
	return bad
}

// fill sets all of v, so that nothing is left out of the JSON.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, d := range sim.Definitions {
			if e := reflect.New(v.Type().Elem()).Elem(); e.Kind() == reflect.Struct || d.Of == "app" {
				fill(e)
				v.SetMapIndex(reflect.ValueOf(d.Name), e)
			}
		}
	case reflect.Float64:
		v.SetFloat(1.25)
	case reflect.Int:
		v.SetInt(3)
	case reflect.Uint64:
		v.SetUint(math.MaxUint64)
	case reflect.String:
		v.SetString("x")
	}
}

func checkResult(t *testing.T, root *schema, r any) []string {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return root.check(root, v, "result")
}

func TestResultIsAsDescribed(t *testing.T) {
	root := readSchema(t)
	var full sim.Result
	fill(reflect.ValueOf(&full).Elem())
	full.Settings.Jobs, full.Settings.Estimate, full.Settings.Entity, full.Settings.Aim = "rigid", "declared", "app", "makespan"
	least := sim.Result{Settings: full.Settings, Policies: []sim.PolicyResult{{Rho: map[string]sim.Rho{}, PerApp: []sim.AppResult{}, Busy: []float64{}}}}
	least.Settings.Lies = ""
	for name, r := range map[string]sim.Result{"full": full, "least": least} {
		if bad := checkResult(t, root, r); len(bad) > 0 {
			t.Errorf("%s: %s", name, strings.Join(bad, "\n"))
		}
	}
	// The check itself finds what is wrong.
	full.Settings.Jobs = "soft"
	full.Policies[0].Rho["other"] = sim.Rho{}
	full.Policies[1].Busy = nil
	if bad := checkResult(t, root, full); len(bad) != 3 {
		t.Errorf("not three faults: %q", bad)
	}
	if bad := root.check(root, map[string]any{"seed": json.Number("1.5")}, ""); len(bad) != len(root.Required) {
		t.Errorf("%q", bad)
	}
}

// TestSchemaIsComplete: every field of Result is described, with its type, and nothing else is.
func TestSchemaIsComplete(t *testing.T) {
	root := readSchema(t)
	if root.Schema != "https://json-schema.org/draft/2020-12/schema" {
		t.Error(root.Schema)
	}
	used := map[string]bool{}
	same := func(path string, got, want []string) {
		got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
		if !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %q, Go has %q", path, got, want)
		}
	}
	keys := func(m map[string]*schema) (k []string) {
		for n := range m {
			k = append(k, n)
		}
		return k
	}
	kinds := map[reflect.Kind]string{reflect.Struct: "object", reflect.Map: "object", reflect.Slice: "array", reflect.String: "string",
		reflect.Float64: "number", reflect.Int: "integer", reflect.Uint64: "integer", reflect.Bool: "boolean"}
	var walk func(s *schema, typ reflect.Type, path string)
	walk = func(s *schema, typ reflect.Type, path string) {
		if s == nil {
			t.Errorf("%s isn't described", path)
			return
		}
		if s.Ref != "" {
			used[strings.TrimPrefix(s.Ref, "#/$defs/")] = true
			if s = root.at(s); s.Ref != "" {
				t.Errorf("%s: a reference to nothing or to another", path)
				return
			}
		}
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if s.Type != kinds[typ.Kind()] {
			t.Errorf("%s: the schema says %q, Go %s", path, s.Type, typ)
			return
		}
		if s.Description == "" && !strings.HasSuffix(path, "[]") {
			t.Errorf("%s has no description", path)
		}
		if s.Type == "object" && (s.Additional == nil || *s.Additional) {
			t.Errorf("%s takes other properties", path)
		}
		switch typ.Kind() {
		case reflect.Struct:
			var all, required []string
			for i := range typ.NumField() {
				f := typ.Field(i)
				name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "" || name == "-" {
					t.Errorf("%s.%s has no name in JSON", path, f.Name)
					continue
				}
				all = append(all, name)
				if opts != "omitempty" {
					required = append(required, name)
				}
				walk(s.Properties[name], f.Type, path+"."+name)
			}
			same(path, keys(s.Properties), all)
			same(path+" required", s.Required, required)
		case reflect.Map:
			var names []string
			for _, d := range sim.Definitions {
				if e := typ.Elem(); e.Kind() == reflect.Struct || d.Of == "app" {
					names = append(names, d.Name)
					walk(s.Properties[d.Name], e, path+"."+d.Name)
				}
			}
			same(path, keys(s.Properties), names)
			same(path+" required", s.Required, nil)
		case reflect.Slice:
			walk(s.Items, typ.Elem(), path+"[]")
		}
	}
	walk(root, reflect.TypeFor[sim.Result](), "result")
	for n := range root.Defs {
		if !used[n] {
			t.Errorf("$defs/%s isn't used", n)
		}
	}
}
