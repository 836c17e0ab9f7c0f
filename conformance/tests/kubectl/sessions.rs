//! The commands, in the order in which they are given.

/// What the commands read.
pub const FILES: &[(&str, &str)] = &[
    ("job.yaml", JOB),
    ("jobs.yaml", JOBS),
    ("pod.yaml", POD),
    ("nodes.yaml", NODES),
    ("bad.yaml", BAD),
    ("typo.yaml", TYPO),
    ("unknown.yaml", UNKNOWN),
    ("cronjob.yaml", CRON_JOB),
    ("map.yaml", MAP),
    ("map2.yaml", MAP2),
    ("event.yaml", EVENT),
    ("list.yaml", LIST),
];

const JOB: &str = "apiVersion: batch/v1
kind: Job
metadata:
  name: indexed
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
  backoffLimitPerIndex: 1
  podFailurePolicy:
    rules:
    - action: FailIndex
      onExitCodes: {operator: In, values: [42]}
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: 'busybox:1.36', command: [sleep, '1']}
";

const JOBS: &str = "apiVersion: batch/v1
kind: Job
metadata: {name: one, labels: {team: a}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: two, labels: {team: b}}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
";

const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: web}}
spec:
  automountServiceAccountToken: false
  restartPolicy: Never
  nodeName: node-a
  containers:
  - name: main
    image: 'busybox:1.36'
    command: [sleep, '100']
    env: [{name: A, value: b}]
    ports: [{containerPort: 80}]
    resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 64Mi}}
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {}}]
";

const NODES: &str = "apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {kubernetes.io/hostname: node-a}}
---
apiVersion: v1
kind: Node
metadata: {name: node-b}
";

const BAD: &str = "apiVersion: batch/v1
kind: Job
metadata: {name: bad}
spec: {parallelism: -1, completions: -2, template: {spec: {restartPolicy: Always, containers: []}}}
";

const TYPO: &str = "apiVersion: batch/v1
kind: Job
metadata: {name: typo}
spec: {paralellism: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, imagePullpolicy: x}]}}}
";

// One field only: errors of several come in any order.
const UNKNOWN: &str = "apiVersion: batch/v1
kind: Job
metadata: {name: unknown}
spec: {paralellism: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
";

const CRON_JOB: &str = "apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: '0 3 * * *'
  timeZone: Etc/UTC
  suspend: true
  jobTemplate:
    spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, command: [work]}]}}}
";

const MAP: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: m}
data: {a: '1', b: '2'}
";

const MAP2: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: m, labels: {x: y}}
data: {a: '3', c: '4'}
";

const EVENT: &str = "apiVersion: v1
kind: Event
metadata: {name: p.1}
involvedObject: {apiVersion: v1, kind: Pod, name: p, namespace: PLACE}
reason: Started
message: started main
type: Normal
count: 2
firstTimestamp: '2026-01-01T00:00:00Z'
lastTimestamp: '2026-01-01T00:00:10Z'
source: {component: kubelet, host: node-a}
";

const LIST: &str = "apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: l1}, data: {a: b}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: l2}, data: {a: b}}
";

/// All commands for one kubectl, in a namespace of its own.
pub fn lines(program: &str) -> Vec<String> {
    let text = SESSION.replace("NS", program);
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

const SESSION: &str = r#"
    # what there is
    kubectl api-resources
    kubectl api-versions
    kubectl create namespace NS
    kubectl config set-context --current --namespace NS
    kubectl create serviceaccount default >/dev/null 2>&1; true
    kubectl get all
    kubectl get nothing
    kubectl get namespace NS
    kubectl describe namespace NS

    # explain
    kubectl explain job
    kubectl explain job.spec.podFailurePolicy.rules
    kubectl explain pod.spec.containers.env --recursive
    kubectl explain cronjob.spec.schedule
    kubectl explain job.spec.nonsense

    # create
    kubectl create job hello --image=busybox:1.36 -- echo hi
    kubectl create job hello --image=busybox:1.36
    kubectl create -f job.yaml
    kubectl create -f job.yaml
    kubectl create -f bad.yaml
    kubectl create -f typo.yaml
    kubectl create -f typo.yaml --validate=warn
    kubectl create -f jobs.yaml -o name
    kubectl create configmap lit --from-literal=a=b --from-literal=c=d -o yaml
    kubectl create secret generic s --from-literal=k=v -o jsonpath='{.data.k}{"\n"}'
    kubectl create -f list.yaml
    kubectl create job dry --image=i --dry-run=server -o yaml
    kubectl create job dry --image=i --dry-run=client -o yaml
    kubectl create role r --verb=get,list --resource=pods,jobs
    kubectl create rolebinding rb --role=r --user=someone
    kubectl create clusterrole cr-NS --verb=get --resource=nodes
    kubectl create priorityclass pc-NS --value=10 --description=d
    kubectl create poddisruptionbudget pdb --selector=app=web --min-available=1
    kubectl create -f cronjob.yaml
    kubectl create job manual --from=cronjob/nightly
    kubectl create job lost --from=cronjob/none
    kubectl create cronjob weekly --image=busybox:1.36 --schedule='0 3 * * 0' -- work hard
    kubectl get cronjob weekly -o yaml
    kubectl create cronjob wrong --image=i --schedule='0 3 * *'
    kubectl create job from-weekly --from=cronjob/weekly --dry-run=server -o yaml
    kubectl create pdb most --selector=app=none --max-unavailable=25%
    kubectl create pdb neither --selector=app=none
    kubectl run box --image=busybox:1.36 --restart=Never --overrides='{"spec":{"automountServiceAccountToken":false}}'

    # look
    kubectl get jobs
    kubectl get jobs -o wide
    kubectl get job indexed -o yaml
    kubectl get job indexed -o jsonpath='{.spec.completions}{" "}{.spec.podFailurePolicy.rules[0].action}{"\n"}'
    kubectl get jobs -o custom-columns=NAME:.metadata.name,PAR:.spec.parallelism
    kubectl get jobs -o name
    kubectl get jobs -l team=a
    kubectl get jobs -l 'team in (a,b)' --show-labels
    kubectl get jobs -L team
    kubectl get jobs --sort-by=.metadata.name
    kubectl get jobs --field-selector metadata.name=one
    kubectl get jobs --field-selector spec.x=y
    kubectl get jobs -l '=='
    kubectl get jobs --chunk-size=2
    kubectl get jobs,cronjobs,configmaps
    kubectl get job none
    kubectl get cronjobs -o wide
    kubectl get pods,sa,secrets,roles,rolebindings,pdb
    kubectl get priorityclass pc-NS
    kubectl get clusterrole cr-NS
    kubectl get --raw /readyz
    kubectl get --raw /api/v1/namespaces/NS/pods/none
    kubectl describe job indexed
    kubectl describe job hello
    kubectl describe cronjob nightly
    kubectl describe configmap l1
    kubectl describe secret s
    kubectl describe role r
    kubectl describe rolebinding rb
    kubectl describe pdb pdb
    kubectl describe priorityclass pc-NS
    kubectl describe serviceaccount default
    kubectl get cronjob nightly -o yaml

    # change
    kubectl apply -f map.yaml
    kubectl apply -f map.yaml
    kubectl diff -f map2.yaml | grep '^[+-] '
    kubectl apply -f map2.yaml
    kubectl get configmap m -o yaml
    kubectl apply view-last-applied configmap m -o json
    kubectl apply -f map.yaml --server-side
    kubectl apply -f map.yaml --server-side --force-conflicts
    kubectl apply -f map.yaml --server-side --field-manager=other
    kubectl apply -f map2.yaml --server-side --field-manager=other
    kubectl get configmap m -o jsonpath='{.data}{"\n"}'
    kubectl apply -f unknown.yaml --server-side
    kubectl apply -f jobs.yaml
    kubectl replace -f map.yaml
    kubectl edit configmap none
    KUBE_EDITOR="sed -i s/'a: \"1\"'/'a: \"9\"'/" kubectl edit configmap m
    KUBE_EDITOR=true kubectl edit configmap m
    kubectl patch configmap m -p '{"data":{"s":"strategic"}}'
    kubectl patch configmap m --type=merge -p '{"data":{"s":null,"t":"merge"}}'
    kubectl patch configmap m --type=json -p '[{"op":"replace","path":"/data/t","value":"json"}]'
    kubectl patch configmap m --type=json -p '[{"op":"test","path":"/data/t","value":"x"}]'
    kubectl patch configmap m -p '{"data":{"t":"json"}}'
    kubectl patch job one -p '{"spec":{"suspend":true}}'
    kubectl patch job one -p '{"spec":{"completions":7}}'
    kubectl patch configmap none -p '{}'
    kubectl label configmap m x=z
    kubectl label configmap m x=z --overwrite
    kubectl label configmap m x-
    kubectl label jobs --all all=yes
    kubectl label configmap m 'bad key=v'
    kubectl annotate configmap m note='a b'
    kubectl annotate configmap m note-
    kubectl set image job/one c=other
    kubectl set image pod/box box=busybox:2

    # pods and nodes
    kubectl create -f nodes.yaml
    kubectl get nodes node-a node-b
    kubectl create -f pod.yaml
    kubectl patch pod p --subresource=status --type=merge -p '{"status":{"phase":"Running","podIP":"10.1.2.3","podIPs":[{"ip":"10.1.2.3"}],"startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}],"containerStatuses":[{"name":"main","image":"busybox:1.36","imageID":"x","containerID":"c://1","ready":true,"restartCount":2,"state":{"running":{"startedAt":"2026-01-01T00:00:01Z"}},"lastState":{}}]}}'
    kubectl patch node node-a --subresource=status --type=merge -p '{"status":{"capacity":{"cpu":"4","memory":"8Gi","pods":"110"},"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"},"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"ok","lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}],"nodeInfo":{"kubeletVersion":"v1.36.4","architecture":"amd64","operatingSystem":"linux","osImage":"Debian","kernelVersion":"6","containerRuntimeVersion":"c://1","machineID":"m","systemUUID":"s","bootID":"b","kubeProxyVersion":""},"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}'
    kubectl get nodes -o wide
    kubectl describe node node-a
    kubectl get pods -o wide
    kubectl get pods --field-selector spec.nodeName=node-a,status.phase=Running
    sed s/PLACE/NS/ event.yaml | kubectl create -f -
    kubectl events
    kubectl events --for pod/p
    kubectl get events
    kubectl describe pod p
    kubectl get pod p -o yaml
    kubectl wait --for=condition=Ready pod/p --timeout=60s
    kubectl wait --for=jsonpath='{.status.phase}'=Running pod/p --timeout=60s
    kubectl wait --for=condition=Complete job/one --timeout=1s
    kubectl wait --for=condition=Ready pod/none --timeout=5s
    kubectl cordon node-a
    kubectl cordon node-a
    kubectl get node node-a
    kubectl uncordon node-a
    kubectl taint node node-a k=v:NoSchedule
    kubectl taint node node-a k=v:NoSchedule
    kubectl taint node node-a k=w:NoSchedule --overwrite
    kubectl taint node node-a k-
    kubectl taint node node-a k-
    kubectl taint nodes node-a node-b k=v:NoExecute other:PreferNoSchedule
    kubectl get nodes node-a node-b -o jsonpath='{.items[*].spec.taints[*].key}{"\n"}'
    kubectl taint nodes node-a node-b k:NoExecute- other-
    kubectl taint node node-a k=v:Sometimes
    kubectl cordon none
    kubectl drain none
    kubectl drain node-b --dry-run=server
    kubectl drain node-a
    # a budget that nobody has looked at makes clients try again for a hundred seconds
    kubectl patch pdb pdb --subresource=status --type=merge -p '{"status":{"observedGeneration":1,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1,"disruptionsAllowed":0}}'
    kubectl drain node-a --force --delete-emptydir-data --grace-period=0 --timeout=3s
    kubectl delete pdb pdb
    kubectl drain node-a --force --delete-emptydir-data --grace-period=0 --timeout=60s
    kubectl get pods
    kubectl delete node node-a node-b

    # who
    kubectl auth whoami
    kubectl auth can-i create jobs
    kubectl auth can-i create pods --subresource=eviction
    kubectl auth can-i get /metrics
    kubectl auth can-i --list
    kubectl auth can-i delete nodes --as=someone
    kubectl auth can-i get pods --as=someone
    kubectl auth can-i list pods --as=someone -q
    kubectl get pods --as=someone
    kubectl get jobs --as=nobody

    # delete
    kubectl patch job hello --type=merge -p '{"metadata":{"finalizers":["example.com/hold"]}}'
    kubectl delete job hello --wait=false
    kubectl get job hello -o jsonpath='{.metadata.finalizers}{"\n"}'
    kubectl patch job hello --type=merge -p '{"metadata":{"finalizers":null}}'
    kubectl wait --for=delete job/hello --timeout=60s
    kubectl delete job one
    kubectl delete job two --cascade=orphan --wait=false
    kubectl delete job manual --cascade=foreground --wait=false
    kubectl delete job indexed --cascade=background
    kubectl delete job none
    kubectl delete job none --ignore-not-found
    kubectl delete pod box --now
    kubectl delete -f list.yaml
    kubectl delete configmaps -l x=nothing
    kubectl delete configmap lit m
    kubectl delete jobs --all --dry-run=server
    kubectl delete cronjob nightly --dry-run=client
    kubectl delete clusterrole cr-NS
    kubectl delete priorityclass pc-NS
    kubectl delete namespace default
    kubectl get jobs
"#;
