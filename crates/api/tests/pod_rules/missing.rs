//! What only a template can lack that went through no defaulting.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::json;
use windlass_api::field::Path;
use windlass_api::validation::pod::validate_pod_template;

fn errors_of(template: serde_json::Value) -> Vec<String> {
    let template: PodTemplateSpec = serde_json::from_value(template).expect("a template");
    validate_pod_template(&template, &Path::new("template")).iter().map(ToString::to_string).collect()
}

#[test]
fn a_template_of_nothing_lacks_what_defaults_give_and_containers() {
    assert_eq!(
        errors_of(json!({})),
        [
            "template.spec.terminationGracePeriodSeconds: Required value",
            "template.spec.containers: Required value",
            "template.spec.restartPolicy: Required value",
            "template.spec.dnsPolicy: Required value",
        ]
    );
}

#[test]
fn a_container_without_defaults_lacks_its_policies() {
    let template = json!({"spec": {
        "terminationGracePeriodSeconds": 30, "restartPolicy": "Never", "dnsPolicy": "Default",
        "volumes": [{"name": "v"}],
        "containers": [{
            "name": "a", "image": "i", "ports": [{"containerPort": 80}],
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "livenessProbe": {"httpGet": {"port": 80}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        }],
    }});
    assert_eq!(
        errors_of(template),
        [
            "template.spec.volumes[0]: Required value: must specify a volume type",
            "template.spec.containers[0].terminationMessagePolicy: Required value",
            "template.spec.containers[0].ports[0].protocol: Required value",
            "template.spec.containers[0].env[0].valueFrom.fieldRef.apiVersion: Required value",
            "template.spec.containers[0].imagePullPolicy: Required value",
            "template.spec.containers[0].livenessProbe.httpGet.path: Required value",
            r#"template.spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: "": supported values: "HTTP", "HTTPS""#,
            "template.spec.containers[0].livenessProbe.successThreshold: Invalid value: 0: must be 1",
        ]
    );
}

#[test]
fn an_amount_that_is_no_quantity_is_named() {
    let template = json!({"spec": {
        "terminationGracePeriodSeconds": 30, "restartPolicy": "Never", "dnsPolicy": "Default",
        "containers": [{
            "name": "a", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
            "resources": {"limits": {"cpu": "one"}, "requests": {"cpu": "1x"}},
        }],
    }});
    let text = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    assert_eq!(
        errors_of(template),
        [
            format!("template.spec.containers[0].resources.limits[cpu]: Invalid value: \"one\": {text}"),
            format!("template.spec.containers[0].resources.requests[cpu]: Invalid value: \"1x\": {text}"),
        ]
    );
}

#[test]
fn errors_that_show_the_whole_value_show_its_json() {
    let template = json!({"spec": {
        "terminationGracePeriodSeconds": 30, "restartPolicy": "Never", "dnsPolicy": "Default",
        "securityContext": {"seccompProfile": {"type": "Unconfined", "localhostProfile": "x"}},
        "containers": [{
            "name": "a", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
            "securityContext": {
                "allowPrivilegeEscalation": false, "privileged": true, "capabilities": {"add": ["CAP_SYS_ADMIN"]},
            },
        }],
    }});
    let context =
        r#"{"allowPrivilegeEscalation":false,"capabilities":{"add":["CAP_SYS_ADMIN"]},"privileged":true}"#;
    let at = "template.spec.containers[0].securityContext: Invalid value: ";
    let text = "cannot set `allowPrivilegeEscalation` to false and ";
    assert_eq!(
        errors_of(template),
        [
            format!("{at}{context}: {text}`privileged` to true"),
            format!("{at}{context}: {text}`capabilities.Add` CAP_SYS_ADMIN"),
            "template.spec.securityContext.seccompProfile.localhostProfile: Invalid value: \
             {\"localhostProfile\":\"x\",\"type\":\"Unconfined\"}: can only be set when seccomp type is Localhost"
                .to_owned(),
        ]
    );
}
