//go:build tools

// Package older names the kubectl of an older release, so that go.mod and go.sum pin it.
package older

import _ "k8s.io/kubernetes/cmd/kubectl"
