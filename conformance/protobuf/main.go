// Command protobuf writes what crates/apiserver knows about the protobuf form of Kubernetes objects, from the struct
// tags of k8s.io/api in the version that go.mod pins:
//
//	cd conformance && go run ./protobuf ../crates/apiserver
//
// src/protobuf/schema.txt is the table that the decoder reads. src/protobuf/golden.txt has objects of every kind as
// client-go encodes them, each with the JSON that the same client would have sent.
//
//	cd conformance && go run ./protobuf random 1000 7
//
// writes so many random objects of every kind in the form of golden.txt to the standard output, from a seed.
package main

import (
	"fmt"
	"log"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// kind is something that can be the body of a request.
type kind struct {
	apiVersion string
	object     runtime.Object
}

var kinds = []kind{
	{"v1", &corev1.Binding{}},
	{"v1", &corev1.ConfigMap{}},
	{"v1", &corev1.Event{}},
	{"v1", &corev1.LimitRange{}},
	{"v1", &corev1.Namespace{}},
	{"v1", &corev1.Node{}},
	{"v1", &corev1.PersistentVolumeClaim{}},
	{"v1", &corev1.Pod{}},
	{"v1", &corev1.PodTemplate{}},
	{"v1", &corev1.ReplicationController{}},
	{"v1", &corev1.ResourceQuota{}},
	{"v1", &corev1.Secret{}},
	{"v1", &corev1.Service{}},
	{"v1", &corev1.ServiceAccount{}},
	{"v1", &metav1.Status{}},
	{"apps/v1", &appsv1.DaemonSet{}},
	{"apps/v1", &appsv1.Deployment{}},
	{"apps/v1", &appsv1.ReplicaSet{}},
	{"apps/v1", &appsv1.StatefulSet{}},
	{"authentication.k8s.io/v1", &authenticationv1.SelfSubjectReview{}},
	{"authentication.k8s.io/v1", &authenticationv1.TokenRequest{}},
	{"authentication.k8s.io/v1", &authenticationv1.TokenReview{}},
	{"authorization.k8s.io/v1", &authorizationv1.LocalSubjectAccessReview{}},
	{"authorization.k8s.io/v1", &authorizationv1.SelfSubjectAccessReview{}},
	{"authorization.k8s.io/v1", &authorizationv1.SelfSubjectRulesReview{}},
	{"authorization.k8s.io/v1", &authorizationv1.SubjectAccessReview{}},
	{"batch/v1", &batchv1.CronJob{}},
	{"batch/v1", &batchv1.Job{}},
	{"coordination.k8s.io/v1", &coordinationv1.Lease{}},
	{"events.k8s.io/v1", &eventsv1.Event{}},
	// In any group and version: client-go gives it those of the object that is to be deleted.
	{"*", &metav1.DeleteOptions{}},
	{"policy/v1", &policyv1.Eviction{}},
	{"policy/v1", &policyv1.PodDisruptionBudget{}},
	{"rbac.authorization.k8s.io/v1", &rbacv1.ClusterRole{}},
	{"rbac.authorization.k8s.io/v1", &rbacv1.ClusterRoleBinding{}},
	{"rbac.authorization.k8s.io/v1", &rbacv1.Role{}},
	{"rbac.authorization.k8s.io/v1", &rbacv1.RoleBinding{}},
	{"scheduling.k8s.io/v1", &schedulingv1.PriorityClass{}},
}

func (k kind) goType() reflect.Type {
	return reflect.TypeOf(k.object).Elem()
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("protobuf: ")
	switch {
	case len(os.Args) == 2:
		write(filepath.Join(os.Args[1], "src/protobuf/schema.txt"), schemaText())
		write(filepath.Join(os.Args[1], "src/protobuf/golden.txt"), golden())
	case len(os.Args) == 4 && os.Args[1] == "random":
		count, seed := number(os.Args[2]), number(os.Args[3])
		random(os.Stdout, int(count), rand.New(rand.NewSource(seed)))
	default:
		log.Fatal("usage: protobuf <directory of crates/apiserver> | protobuf random <count> <seed>")
	}
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func write(path, text string) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
}

const generated = `# Made by conformance/protobuf from the struct tags of k8s.io/api. Do not edit; make it again with
#   cd conformance && go run ./protobuf ../crates/apiserver
`

const legend = `#
# kind <apiVersion> <kind> <message>: what the body of a request can be ("*": in any group and version).
# message <name>, then its fields in the order in which Go writes them as JSON: <number> <JSON name> <type>.
# "?" after a name: left out of the JSON when empty. "." as a name: the fields of the message stand in its place.
# "*" before a type: a pointer, so that zero is a value and only absence is empty.
`

// schemaText is the table.
func schemaText() string {
	var out strings.Builder
	out.WriteString(generated + legend)
	table := table{seen: map[reflect.Type]bool{}}
	for _, kind := range kinds {
		fmt.Fprintf(&out, "kind %s %s %s\n", kind.apiVersion, kind.goType().Name(), name(kind.goType()))
		table.add(kind.goType())
	}
	out.WriteString(table.text.String())
	return out.String()
}

type table struct {
	seen map[reflect.Type]bool
	text strings.Builder
}

// add writes a message, then those that it has not written yet and that this one refers to.
func (t *table) add(message reflect.Type) {
	if t.seen[message] {
		return
	}
	t.seen[message] = true
	fmt.Fprintf(&t.text, "message %s\n", name(message))
	var next []reflect.Type
	for i := range message.NumField() {
		line, inner := field(message.Field(i))
		if line != "" {
			fmt.Fprintln(&t.text, line)
		}
		if inner != nil {
			next = append(next, inner)
		}
	}
	for _, inner := range next {
		t.add(inner)
	}
}

// field is the line of a field, and the message it refers to. There is none for what is not in the protobuf form.
func field(f reflect.StructField) (string, reflect.Type) {
	tag := f.Tag.Get("protobuf")
	if tag == "" || tag == "-" {
		if f.Type != reflect.TypeFor[metav1.TypeMeta]() {
			log.Fatalf("%s %s has no protobuf tag", f.Name, f.Type)
		}
		return "", nil
	}
	number := strings.Split(tag, ",")[1]
	options := strings.Split(f.Tag.Get("json"), ",")
	text, inner := typeText(f.Type)
	jsonName := options[0]
	switch {
	case jsonName == "" && contains(options, "inline") && inner != nil && f.Type.Kind() == reflect.Struct:
		jsonName = "."
	case jsonName == "":
		log.Fatalf("%s has no JSON name", f.Name)
	case isOmitted(f.Type, options):
		jsonName += "?"
	}
	return fmt.Sprintf("%s %s %s", number, jsonName, text), inner
}

// isOmitted tells whether encoding/json leaves an empty value out. omitempty means nothing for a struct.
func isOmitted(t reflect.Type, options []string) bool {
	if contains(options, "omitzero") {
		if t != reflect.TypeFor[metav1.Time]() {
			log.Fatalf("omitzero of a %s is not supported", t)
		}
		return true
	}
	return contains(options, "omitempty") && t.Kind() != reflect.Struct
}

func contains(options []string, wanted string) bool {
	for _, option := range options {
		if option == wanted {
			return true
		}
	}
	return false
}

// typeText is a type as the table says it, and the message in it.
func typeText(t reflect.Type) (string, reflect.Type) {
	if special, ok := specials[name(t)]; ok {
		return special, nil
	}
	switch t.Kind() {
	case reflect.String:
		return "string", nil
	case reflect.Bool, reflect.Int32, reflect.Int64:
		return t.Kind().String(), nil
	case reflect.Struct:
		return name(t), t
	case reflect.Pointer:
		text, inner := typeText(t.Elem())
		return "*" + text, inner
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes", nil
		}
		text, inner := typeText(t.Elem())
		return "[]" + text, inner
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			log.Fatalf("%s is not supported", t)
		}
		text, inner := typeText(t.Elem())
		return "map[string]" + text, inner
	}
	log.Fatalf("%s is not supported", t)
	return "", nil
}

// specials are the types whose JSON is not that of their fields.
var specials = map[string]string{
	"meta/v1.Time":                 "Time",
	"meta/v1.MicroTime":            "MicroTime",
	"meta/v1.FieldsV1":             "JSON",
	"resource.Quantity":            "Quantity",
	"intstr.IntOrString":           "IntOrString",
	"runtime.RawExtension":         "JSON",
	"authentication/v1.ExtraValue": "Strings",
	"authorization/v1.ExtraValue":  "Strings",
}

// name is the short name of a message: core/v1.Pod.
func name(t reflect.Type) string {
	path := t.PkgPath()
	for _, prefix := range []string{"k8s.io/api/", "k8s.io/apimachinery/pkg/apis/", "k8s.io/apimachinery/pkg/api/", "k8s.io/apimachinery/pkg/util/", "k8s.io/apimachinery/pkg/"} {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			return rest + "." + t.Name()
		}
	}
	return path + "." + t.Name()
}
