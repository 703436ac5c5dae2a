// Command mergekeys writes by which fields client-side upgrades merge lists of built-in kinds, and merges that Kubernetes'
// own library made.
//
// Run in the folder above, after a change of the versions in go.mod:
//
//	go run ./mergekeys keys > ../../../engines/apply/src/three_way_merge/keys.txt
//	go run ./mergekeys merges < ../../../engines/apply/src/three_way_merge/merges.json > /tmp/merges.json
//
// The second command reads merges (kind, original, wanted, live) and writes them with what comes of each.
// The reader of the table (engines/apply/src/three_way_merge/merge_key_table.rs) says what a line means.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// field is one that a merge has to know about, or that leads to one.
type field struct {
	name, merge string
	below       reflect.Type
}

type writer struct {
	fields  map[reflect.Type][]field
	matters map[reflect.Type]bool
	numbers map[reflect.Type]int
	types   []reflect.Type
}

// structOf is the struct within pointers, lists and nothing else.
func structOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

func isList(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8
}

// read collects the fields of a type and of all below it.
func (w *writer) read(t reflect.Type) {
	if _, known := w.fields[t]; known {
		return
	}
	w.fields[t] = nil
	var fields []field
	for i := range t.NumField() {
		it := t.Field(i)
		name, _, _ := strings.Cut(it.Tag.Get("json"), ",")
		if name == "-" || it.PkgPath != "" {
			continue
		}
		below := structOf(it.Type)
		if below != nil {
			w.read(below)
		}
		if name == "" {
			if below != nil {
				fields = append(fields, w.fields[below]...)
			}
			continue
		}
		merge := ""
		for _, strategy := range strings.Split(it.Tag.Get("patchStrategy"), ",") {
			switch strategy {
			case "merge":
				merge += "[" + it.Tag.Get("patchMergeKey")
			case "retainKeys":
				merge = "~" + merge
			case "replace":
				merge = "="
			}
		}
		if isList(it.Type) && !strings.Contains(merge, "[") {
			continue
		}
		fields = append(fields, field{name, merge, below})
	}
	w.fields[t] = fields
}

// settle finds the types that have a field with a strategy, or lead to one.
func (w *writer) settle() {
	for changed := true; changed; {
		changed = false
		for t, fields := range w.fields {
			for _, it := range fields {
				if !w.matters[t] && (it.merge != "" || it.below != nil && w.matters[it.below]) {
					w.matters[t] = true
					changed = true
				}
			}
		}
	}
}

func (w *writer) number(t reflect.Type) int {
	n, known := w.numbers[t]
	if !known {
		n = len(w.types)
		w.numbers[t] = n
		w.types = append(w.types, t)
	}
	return n
}

func (w *writer) line(t reflect.Type) string {
	var words []string
	for _, it := range w.fields[t] {
		leads := it.below != nil && w.matters[it.below]
		if it.merge == "" && !leads {
			continue
		}
		word := it.name + it.merge
		if leads {
			word += fmt.Sprintf(":%d", w.number(it.below))
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func keys() {
	w := &writer{
		fields:  map[reflect.Type][]field{},
		matters: map[reflect.Type]bool{},
		numbers: map[reflect.Type]int{},
	}
	kinds := map[string][]string{}
	types := scheme.Scheme.AllKnownTypes()
	for gvk, t := range types {
		if gvk.Version == runtime.APIVersionInternal {
			continue
		}
		if _, ok := reflect.New(t).Interface().(metav1.Object); ok {
			w.read(t)
			version := gvk.GroupVersion().String()
			kinds[version] = append(kinds[version], gvk.Kind)
		}
	}
	w.settle()
	versions := make([]string, 0, len(kinds))
	for version := range kinds {
		versions = append(versions, version)
	}
	sort.Strings(versions)
	for _, version := range versions {
		sort.Strings(kinds[version])
		fmt.Print("@", version)
		for _, kind := range kinds[version] {
			gv, err := schema.ParseGroupVersion(version)
			check(err)
			fmt.Printf(" %s %d", kind, w.number(types[gv.WithKind(kind)]))
		}
		fmt.Println()
	}
	for i := 0; i < len(w.types); i++ {
		fmt.Println(w.line(w.types[i]))
	}
}

// merge is what is merged, and what comes of it.
type merge struct {
	Name       string          `json:"name"`
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Original   json.RawMessage `json:"original"`
	Wanted     json.RawMessage `json:"wanted"`
	Live       json.RawMessage `json:"live"`
	Merged     json.RawMessage `json:"merged,omitempty"`
}

func merges() {
	var all []merge
	check(json.NewDecoder(os.Stdin).Decode(&all))
	for i := range all {
		it := &all[i]
		gv, err := schema.ParseGroupVersion(it.APIVersion)
		check(err)
		object, err := scheme.Scheme.New(gv.WithKind(it.Kind))
		check(err)
		meta, err := strategicpatch.NewPatchMetaFromStruct(object)
		check(err)
		patch, err := strategicpatch.CreateThreeWayMergePatch(it.Original, it.Wanted, it.Live, meta, true)
		check(err)
		it.Merged, err = strategicpatch.StrategicMergePatchUsingLookupPatchMeta(it.Live, patch, meta)
		check(err)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	check(out.Encode(all))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "keys" {
		keys()
		return
	}
	merges()
}
