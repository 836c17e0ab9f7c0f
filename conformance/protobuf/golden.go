package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand"
	"reflect"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// golden has three objects of every kind: one with nothing in it, one whose pointers, lists and maps hold zero values,
// and one with every field set. After them come bodies as clients send them.
func golden() string {
	var out strings.Builder
	out.WriteString(generated)
	out.WriteString("# <kind> <name of the object>, its protobuf form in base64, and the JSON of the same object.\n")
	for _, kind := range kinds {
		line(&out, kind, "empty", kind.object.DeepCopyObject())
		_, isPod := kind.object.(*corev1.Pod)
		zeros := kind.object.DeepCopyObject()
		fill(reflect.ValueOf(zeros).Elem(), &filler{hasWholePods: isPod})
		line(&out, kind, "zeros", zeros)
		full := kind.object.DeepCopyObject()
		fill(reflect.ValueOf(full).Elem(), &filler{isFull: true, hasWholePods: isPod})
		line(&out, kind, "full", full)
	}
	for _, sent := range sent {
		line(&out, sent.kind, sent.name, sent.kind.object)
	}
	return out.String()
}

// sent is what clients send, for tests of the whole server.
var sent = []struct {
	name string
	kind kind
}{
	{"sent", kind{"batch/v1", &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "pi", Namespace: "default"},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: shortPod}, BackoffLimit: new(int32)},
	}}},
	{"sent", kind{"batch/v1", &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "nightly"},
		Spec: batchv1.CronJobSpec{Schedule: "0 3 * * *", JobTemplate: batchv1.JobTemplateSpec{
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: shortPod}},
		}},
	}}},
	{"sent", kind{"v1", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: shortPod}}},
	{"sent", kind{"v1", &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "cm"},
		Data:       map[string]string{"a": "1"},
		BinaryData: map[string][]byte{"b": {0xff}},
	}}},
	{"sent", kind{"v1", &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "n1"},
	}}},
	{"sent", kind{"policy/v1", &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: "p", Namespace: "default"},
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
	}}},
	{"in-the-background", kind{"batch/v1", &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}}},
	{"on-another-uid", kind{"batch/v1", &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}}},
	{"sent", kind{"authorization.k8s.io/v1", &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "create", Group: "batch", Resource: "jobs"},
		},
	}}},
	{"sent", kind{"rbac.authorization.k8s.io/v1", &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
	}}},
}

// random writes objects whose every field is set or not by chance.
func random(out io.Writer, count int, source *rand.Rand) {
	for i := range count {
		kind := kinds[i%len(kinds)]
		object := kind.object.DeepCopyObject()
		fill(reflect.ValueOf(object).Elem(), &filler{isFull: true, hasWholePods: true, chance: source})
		line(out, kind, fmt.Sprintf("random-%d", i), object)
	}
}

func line(out io.Writer, kind kind, name string, object runtime.Object) {
	apiVersion := kind.apiVersion
	if apiVersion == "*" {
		apiVersion = "batch/v1"
	}
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind.goType().Name())
	object.GetObjectKind().SetGroupVersionKind(gvk)
	encoder := protobuf.NewSerializer(nil, nil)
	var encoded bytes.Buffer
	if err := encoder.Encode(object, &encoded); err != nil {
		log.Fatal(err)
	}
	text := marshal(object)
	checkTwin(kind, encoded.Bytes(), text)
	fmt.Fprintf(out, "%s %s %s %s\n", kind.goType().Name(), name, base64.StdEncoding.EncodeToString(encoded.Bytes()), text)
}

func marshal(object runtime.Object) string {
	text, err := json.Marshal(object)
	if err != nil {
		log.Fatal(err)
	}
	return string(text)
}

// checkTwin makes sure that the two forms say the same to Kubernetes itself.
func checkTwin(kind kind, encoded []byte, text string) {
	unknown := runtime.Unknown{}
	if err := unknown.Unmarshal(encoded[4:]); err != nil {
		log.Fatal(err)
	}
	decoded := reflect.New(kind.goType()).Interface().(runtime.Object)
	if err := decoded.(interface{ Unmarshal([]byte) error }).Unmarshal(unknown.Raw); err != nil {
		log.Fatal(err)
	}
	decoded.GetObjectKind().SetGroupVersionKind(unknown.GroupVersionKind())
	if back := marshal(decoded); back != text {
		log.Fatalf("%s comes back as\n%s\nand was\n%s", kind.goType().Name(), back, text)
	}
}

// filler says what to put into fields: zero values behind pointers and in lists and maps, or something everywhere.
type filler struct {
	isFull       bool
	hasWholePods bool
	// Whether a field is set, and to what; nil: all are, to something that differs from field to field.
	chance  *rand.Rand
	counter int64
}

func (f *filler) skips() bool {
	return f.chance != nil && f.chance.Intn(3) == 0
}

func (f *filler) next() int64 {
	f.counter++
	if f.chance == nil {
		return f.counter
	}
	switch f.chance.Intn(4) {
	case 0:
		return 0
	case 1:
		return -f.chance.Int63n(1 << 31)
	case 2:
		return f.chance.Int63n(1 << 31)
	default:
		return f.chance.Int63n(100)
	}
}

func (f *filler) text() string {
	if f.chance != nil && f.chance.Intn(5) == 0 {
		return []string{"", "é\u0000\"\\", "\u2028<&>", "a b", "😀"}[f.chance.Intn(5)]
	}
	return fmt.Sprintf("t%d", f.next())
}

func (f *filler) length() int {
	if f.chance == nil {
		return 1
	}
	return 1 + f.chance.Intn(2)
}

// A pod inside of another object is short, unless pods are what it is about: all that is in it is in the object Pod.
var shortPod = corev1.PodSpec{
	RestartPolicy: corev1.RestartPolicyNever,
	Containers:    []corev1.Container{{Name: "c", Image: "host", Command: []string{"true"}}},
}

func fill(v reflect.Value, f *filler) {
	if !v.CanSet() {
		return
	}
	if v.Type() == reflect.TypeFor[corev1.PodSpec]() && !f.hasWholePods {
		v.Set(reflect.ValueOf(*shortPod.DeepCopy()))
		return
	}
	if f.isFull && fillSpecial(v, f) {
		return
	}
	switch v.Kind() {
	case reflect.String:
		if f.isFull {
			v.SetString(f.text())
		}
	case reflect.Bool:
		v.SetBool(f.isFull && f.next() != 0)
	case reflect.Int32, reflect.Int64:
		if f.isFull {
			v.SetInt(f.next())
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), f)
	case reflect.Struct:
		fillStruct(v, f)
	case reflect.Slice:
		fillSlice(v, f)
	case reflect.Map:
		fillMap(v, f)
	default:
		log.Fatalf("%s is not supported", v.Type())
	}
}

func fillStruct(v reflect.Value, f *filler) {
	if _, isSpecial := specials[name(v.Type())]; isSpecial {
		return
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("protobuf") != "" && !f.skips() {
			fill(v.Field(i), f)
		}
	}
}

func fillSlice(v reflect.Value, f *filler) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		v.SetBytes([]byte(f.text() + "\xff"))
		return
	}
	length := f.length()
	v.Set(reflect.MakeSlice(v.Type(), length, length))
	for i := range length {
		fill(v.Index(i), f)
	}
}

func fillMap(v reflect.Value, f *filler) {
	v.Set(reflect.MakeMap(v.Type()))
	for i := range f.length() {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		if f.isFull {
			key.SetString(fmt.Sprintf("%s-%d", f.text(), i))
		}
		fill(value, f)
		v.SetMapIndex(key, value)
	}
}

func fillSpecial(v reflect.Value, f *filler) bool {
	at := time.Unix(1767323045+f.counter, 123456000).UTC()
	if f.chance != nil {
		at = time.Unix(f.chance.Int63n(200_000_000_000)-60_000_000_000, f.chance.Int63n(1_000_000)*1000).UTC()
	}
	switch value := v.Addr().Interface().(type) {
	case *metav1.Time:
		// The protobuf form has whole seconds.
		*value = metav1.NewTime(at.Truncate(time.Second))
	case *metav1.MicroTime:
		*value = metav1.NewMicroTime(at)
	case *metav1.FieldsV1:
		if err := json.Unmarshal([]byte(`{"f:metadata":{"f:labels":{".":{}}}}`), value); err != nil {
			log.Fatal(err)
		}
	case *resource.Quantity:
		*value = *resource.NewMilliQuantity(f.next(), resource.DecimalSI)
	case *intstr.IntOrString:
		if number := f.next(); number%2 == 0 {
			*value = intstr.FromInt32(int32(number))
		} else {
			*value = intstr.FromString(f.text())
		}
	case *runtime.RawExtension:
		value.Raw = []byte(`{"apiVersion":"x/v1","kind":"X","n":1}`)
	default:
		return false
	}
	return true
}
