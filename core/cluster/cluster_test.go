// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"reflect"
	"testing"
	"time"
)

// TestSame changes each field of a job, and of its hint and shape: none is overlooked.
func TestSame(t *testing.T) {
	var change func(at string, v reflect.Value, same func() bool)
	change = func(at string, v reflect.Value, same func() bool) {
		_, isTime := v.Interface().(time.Time)
		if v.Kind() == reflect.Struct && !isTime {
			for i := range v.NumField() {
				change(at+"."+v.Type().Field(i).Name, v.Field(i), same)
			}
			return
		}
		was := reflect.ValueOf(v.Interface())
		switch v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(1)
		case reflect.Uint8, reflect.Uint32, reflect.Uint64:
			v.SetUint(1)
		case reflect.Float64:
			v.SetFloat(1)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		default:
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
		}
		if same() {
			t.Errorf("%s is overlooked", at)
		}
		v.Set(was)
		if !same() {
			t.Fatalf("%s was changed for good", at)
		}
	}
	var x, y Job
	change("Job", reflect.ValueOf(&x).Elem(), func() bool { return x.Same(&y) })
}
