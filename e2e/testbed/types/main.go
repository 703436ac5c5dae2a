// Command types writes the table of Kubernetes' API types by which manifests are normalised.
//
// Run in this folder, after a change of the versions in go.mod:
//
//	go run . > ../../../engines/apply/src/normalize/types.txt
//
// The reader of the table (engines/apply/src/normalize/table.rs) says what a line means.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// special are the types with a form of their own in JSON.
var special = map[reflect.Type]string{
	reflect.TypeOf(resource.Quantity{}):    "Q",
	reflect.TypeOf(intstr.IntOrString{}):   "I",
	reflect.TypeOf(metav1.Time{}):          "T",
	reflect.TypeOf(metav1.MicroTime{}):     "M",
	reflect.TypeOf(metav1.Duration{}):      "D",
	reflect.TypeOf(runtime.RawExtension{}): "R",
	reflect.TypeOf(metav1.FieldsV1{}):      "R",
}

var unmarshaler = reflect.TypeOf((*json.Unmarshaler)(nil)).Elem()

type writer struct {
	numbers map[reflect.Type]int
	types   []reflect.Type
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

func (w *writer) code(t reflect.Type) string {
	if code, ok := special[t]; ok {
		return code
	}
	if reflect.PointerTo(t).Implements(unmarshaler) && t.Kind() != reflect.Pointer {
		fail("%v reads JSON in a way of its own", t)
	}
	switch t.Kind() {
	case reflect.String:
		return "s"
	case reflect.Bool:
		return "b"
	case reflect.Int32:
		return "i"
	case reflect.Int, reflect.Int64:
		return "l"
	case reflect.Uint8:
		return "y"
	case reflect.Float64:
		return "f"
	case reflect.Interface:
		return "X"
	case reflect.Pointer:
		return "*" + w.code(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "B"
		}
		return "[" + w.code(t.Elem())
	case reflect.Map:
		return "{" + w.code(t.Elem())
	case reflect.Struct:
		return fmt.Sprint(w.number(t))
	}
	fail("%v is of no kind that is known", t)
	return ""
}

// fields are those of a struct, with those of inlined structs among them.
func (w *writer) fields(t reflect.Type) []string {
	var lines []string
	for i := range t.NumField() {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("json"), ",")
		name, marks := tag[0], ""
		if name == "-" {
			continue
		}
		if name == "" && !field.Anonymous {
			name = field.Name
		}
		if name == "" {
			if field.Type.Kind() != reflect.Struct {
				fail("%v.%s is inlined and no struct", t, field.Name)
			}
			lines = append(lines, w.fields(field.Type)...)
			continue
		}
		for _, option := range tag[1:] {
			switch option {
			case "omitempty":
				marks += "?"
			case "omitzero":
				marks += "!"
			}
		}
		lines = append(lines, name+marks+":"+w.code(field.Type))
	}
	return lines
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func main() {
	w := &writer{numbers: map[reflect.Type]int{}}
	kinds := map[string][]string{}
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal {
			continue
		}
		if _, ok := reflect.New(t).Interface().(metav1.Object); !ok {
			continue
		}
		version := gvk.GroupVersion().String()
		kinds[version] = append(kinds[version], gvk.Kind)
	}
	versions := make([]string, 0, len(kinds))
	for version := range kinds {
		versions = append(versions, version)
	}
	sort.Strings(versions)
	for _, version := range versions {
		sort.Strings(kinds[version])
		fmt.Print("@", version)
		for _, kind := range kinds[version] {
			group, v, found := strings.Cut(version, "/")
			if !found {
				group, v = "", version
			}
			gvk := metav1.GroupVersionKind{Group: group, Version: v, Kind: kind}
			for known, t := range scheme.Scheme.AllKnownTypes() {
				if known.Group == gvk.Group && known.Version == gvk.Version && known.Kind == gvk.Kind {
					fmt.Printf(" %s %d", kind, w.number(t))
				}
			}
		}
		fmt.Println()
	}
	for i := 0; i < len(w.types); i++ {
		fmt.Println(strings.Join(w.fields(w.types[i]), " "))
	}
}
