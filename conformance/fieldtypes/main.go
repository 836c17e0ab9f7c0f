// Command fieldtypes prints what patches and server-side apply must know about the fields of the kinds that Windlass
// serves: which lists are keyed, sets or atomic, which maps are atomic, which fields an object always has, and how a
// strategic merge patch treats them. Its output is crates/apiserver/src/fields/types.txt:
//
//	cd conformance && go run ./fieldtypes > ../crates/apiserver/src/fields/types.txt
//
// The facts are those of the schema that client-go carries for apply configurations, and of the struct tags of k8s.io/api.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/yaml"
)

// typeRef, atom and field are the schema as client-go writes it.
type typeRef struct {
	NamedType           string `json:"namedType"`
	ElementRelationship string `json:"elementRelationship"`
	atom
}

type atom struct {
	Scalar string    `json:"scalar"`
	List   *listType `json:"list"`
	Map    *mapType  `json:"map"`
}

type listType struct {
	ElementType         typeRef  `json:"elementType"`
	ElementRelationship string   `json:"elementRelationship"`
	Keys                []string `json:"keys"`
}

type mapType struct {
	Fields              []field  `json:"fields"`
	ElementType         *typeRef `json:"elementType"`
	ElementRelationship string   `json:"elementRelationship"`
}

type field struct {
	Name    string          `json:"name"`
	Type    typeRef         `json:"type"`
	Default json.RawMessage `json:"default"`
}

type namedType struct {
	Name string `json:"name"`
	atom
}

var kinds = []struct {
	apiVersion string
	object     any
}{
	{"v1", corev1.ConfigMap{}},
	{"v1", corev1.Event{}},
	{"v1", corev1.LimitRange{}},
	{"v1", corev1.Namespace{}},
	{"v1", corev1.Node{}},
	{"v1", corev1.PersistentVolumeClaim{}},
	{"v1", corev1.Pod{}},
	{"v1", corev1.PodTemplate{}},
	{"v1", corev1.ReplicationController{}},
	{"v1", corev1.ResourceQuota{}},
	{"v1", corev1.Secret{}},
	{"v1", corev1.Service{}},
	{"v1", corev1.ServiceAccount{}},
	{"apps/v1", appsv1.DaemonSet{}},
	{"apps/v1", appsv1.Deployment{}},
	{"apps/v1", appsv1.ReplicaSet{}},
	{"apps/v1", appsv1.StatefulSet{}},
	{"batch/v1", batchv1.CronJob{}},
	{"batch/v1", batchv1.Job{}},
	{"coordination.k8s.io/v1", coordinationv1.Lease{}},
	{"events.k8s.io/v1", eventsv1.Event{}},
	{"policy/v1", policyv1.PodDisruptionBudget{}},
	{"rbac.authorization.k8s.io/v1", rbacv1.ClusterRole{}},
	{"rbac.authorization.k8s.io/v1", rbacv1.ClusterRoleBinding{}},
	{"rbac.authorization.k8s.io/v1", rbacv1.Role{}},
	{"rbac.authorization.k8s.io/v1", rbacv1.RoleBinding{}},
	{"scheduling.k8s.io/v1", schedulingv1.PriorityClass{}},
}

type printer struct {
	types map[string]namedType
	lines map[string]string
}

func main() {
	types, err := readSchema()
	if err != nil {
		log.Fatal(err)
	}
	p := printer{types: types, lines: map[string]string{}}
	for _, kind := range kinds {
		t := reflect.TypeOf(kind.object)
		name := schemaName(t)
		p.walk(name, t)
		fmt.Printf("kind %s %s %s\n", kind.apiVersion, t.Name(), short(name))
	}
	names := make([]string, 0, len(p.lines))
	for name := range p.lines {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Println(p.lines[name])
	}
}

func readSchema() (map[string]namedType, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go").Output()
	if err != nil {
		return nil, fmt.Errorf("find client-go: %w", err)
	}
	file := filepath.Join(strings.TrimSpace(string(dir)), "applyconfigurations", "internal", "internal.go")
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	_, text, _ := strings.Cut(string(source), "typed.YAMLObject(`")
	text, _, _ = strings.Cut(text, "`)")
	var schema struct {
		Types []namedType `json:"types"`
	}
	if err := yaml.Unmarshal([]byte(text), &schema); err != nil {
		return nil, fmt.Errorf("read the schema in %s: %w", file, err)
	}
	types := map[string]namedType{}
	for _, t := range schema.Types {
		types[t.Name] = t
	}
	return types, nil
}

// schemaName is the name that the schema has for a Go type: k8s.io/api/core/v1.Pod is io.k8s.api.core.v1.Pod.
func schemaName(t reflect.Type) string {
	path := strings.TrimPrefix(t.PkgPath(), "k8s.io/")
	return "io.k8s." + strings.ReplaceAll(path, "/", ".") + "." + t.Name()
}

// short is core.Pod, or meta.ObjectMeta.
func short(name string) string {
	parts := strings.Split(name, ".")
	return parts[len(parts)-3] + "." + parts[len(parts)-1]
}

func (p *printer) walk(name string, t reflect.Type) {
	if _, done := p.lines[name]; done {
		return
	}
	p.lines[name] = ""
	schema := p.types[name].Map
	keys := p.keysOf(name)
	line := []string{"type " + short(name)}
	if schema.ElementRelationship == "atomic" {
		line[0] += "!"
	}
	goFields := map[string]reflect.StructField{}
	collect(t, goFields)
	for _, f := range schema.Fields {
		g, ok := goFields[f.Name]
		if !ok {
			log.Fatalf("%s has no field %s", t, f.Name)
		}
		text := f.Name + ":" + p.typeText(f.Type, g.Type) + presence(g)
		if keys[f.Name] && f.Default != nil && string(f.Default) != "null" {
			text += "=" + string(f.Default)
		}
		if strategy := g.Tag.Get("patchStrategy"); strategy != "" {
			text += "~" + strategy + "@" + g.Tag.Get("patchMergeKey")
		}
		line = append(line, text)
	}
	p.lines[name] = strings.Join(line, " ")
}

// keysOf is the fields by which any list tells items of this type apart: only their defaults matter.
func (p *printer) keysOf(name string) map[string]bool {
	keys := map[string]bool{}
	var look func(a atom)
	look = func(a atom) {
		if a.List != nil {
			if a.List.ElementType.NamedType == name {
				for _, key := range a.List.Keys {
					keys[key] = true
				}
			}
			look(a.List.ElementType.atom)
		}
		if a.Map != nil {
			for _, f := range a.Map.Fields {
				look(f.Type.atom)
			}
			if a.Map.ElementType != nil {
				look(a.Map.ElementType.atom)
			}
		}
	}
	for _, t := range p.types {
		look(t.atom)
	}
	return keys
}

func collect(t reflect.Type, out map[string]reflect.StructField) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if strings.Contains(options, "inline") || (f.Anonymous && name == "") {
			collect(f.Type, out)
			continue
		}
		out[name] = f
	}
}

// presence: "+" for a field that an object always has, "?" for one that it has when it was given, nothing for one that
// it has when it is not empty.
func presence(f reflect.StructField) string {
	tag := f.Tag.Get("json")
	switch {
	case strings.Contains(tag, ",omitzero"):
		return ""
	case !strings.Contains(tag, ",omitempty"), f.Type.Kind() == reflect.Struct:
		return "+"
	case f.Type.Kind() == reflect.Pointer:
		return "?"
	default:
		return ""
	}
}

func (p *printer) typeText(ref typeRef, t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	a := ref.atom
	if ref.NamedType != "" {
		named := p.types[ref.NamedType]
		if named.Map != nil && named.Scalar == "" && len(named.Map.Fields) > 0 {
			p.walk(ref.NamedType, t)
			text := short(ref.NamedType)
			if ref.ElementRelationship == "atomic" {
				text += "!"
			}
			return text
		}
		a = named.atom
	}
	relationship := ref.ElementRelationship
	switch {
	case a.Scalar != "" && a.Map != nil:
		return "any"
	case a.Scalar != "":
		return a.Scalar
	case a.List != nil:
		if relationship == "" {
			relationship = a.List.ElementRelationship
		}
		element := p.typeText(a.List.ElementType, t.Elem())
		switch {
		case relationship == "atomic":
			return "[!]" + element
		case len(a.List.Keys) > 0:
			return "[" + strings.Join(a.List.Keys, ",") + "]" + element
		default:
			return "[]" + element
		}
	case a.Map != nil && a.Map.ElementType != nil:
		if relationship == "" {
			relationship = a.Map.ElementRelationship
		}
		element := "any"
		if t.Kind() == reflect.Map {
			element = p.typeText(*a.Map.ElementType, t.Elem())
		}
		if relationship == "atomic" {
			return "{!}" + element
		}
		return "{}" + element
	default:
		// A struct without fields.
		return "{}any"
	}
}
