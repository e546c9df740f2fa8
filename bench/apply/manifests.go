package main

import (
	"fmt"
	"strings"
)

// objectsPerArtifact is the number of objects in each artifact.
const objectsPerArtifact = 20

// Placeholders in the manifests.
const (
	namespaceMark = "NAMESPACE"
	appMark       = "APP"
	componentMark = "COMPONENT"
)

// manifests returns the files of an application by their names: three components with five objects
// each, and five objects that the components share.
func manifests(namespace, app string) map[string]string {
	files := map[string]string{}
	for _, component := range []string{"web", "api", "worker"} {
		files[component+".yaml"] = strings.NewReplacer(
			namespaceMark, namespace, appMark, app, componentMark, component, "SETTINGS", settings(component),
		).Replace(componentManifests)
	}
	files["shared.yaml"] = strings.NewReplacer(namespaceMark, namespace, appMark, app).Replace(sharedManifests)
	return files
}

// settings returns the lines of a component's configuration file.
func settings(component string) string {
	var lines strings.Builder
	for i := range 40 {
		fmt.Fprintf(&lines, "    %s.feature-%02d.timeout: %ds\n", component, i, i+1)
	}
	return lines.String()
}

// componentManifests are the objects of a component. The Service has no address: the control plane
// has too few addresses.
const componentManifests = `apiVersion: v1
kind: ServiceAccount
metadata:
  name: APP-COMPONENT
  namespace: NAMESPACE
  labels:
    app.kubernetes.io/name: COMPONENT
    app.kubernetes.io/part-of: APP
automountServiceAccountToken: false
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: APP-COMPONENT
  namespace: NAMESPACE
  labels:
    app.kubernetes.io/name: COMPONENT
    app.kubernetes.io/part-of: APP
data:
  log-level: info
  settings.yaml: |
SETTINGS---
apiVersion: v1
kind: Service
metadata:
  name: APP-COMPONENT
  namespace: NAMESPACE
  labels:
    app.kubernetes.io/name: COMPONENT
    app.kubernetes.io/part-of: APP
spec:
  clusterIP: None
  selector:
    app.kubernetes.io/name: COMPONENT
    app.kubernetes.io/part-of: APP
  ports:
    - name: http
      port: 80
      targetPort: http
    - name: metrics
      port: 9090
      targetPort: metrics
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: APP-COMPONENT
  namespace: NAMESPACE
  labels:
    app.kubernetes.io/name: COMPONENT
    app.kubernetes.io/part-of: APP
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      app.kubernetes.io/name: COMPONENT
      app.kubernetes.io/part-of: APP
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: APP-COMPONENT
  namespace: NAMESPACE
  labels:
    app.kubernetes.io/name: COMPONENT
    app.kubernetes.io/part-of: APP
spec:
  replicas: 2
  revisionHistoryLimit: 3
  selector:
    matchLabels:
      app.kubernetes.io/name: COMPONENT
      app.kubernetes.io/part-of: APP
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  template:
    metadata:
      labels:
        app.kubernetes.io/name: COMPONENT
        app.kubernetes.io/part-of: APP
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "9090"
    spec:
      serviceAccountName: APP-COMPONENT
      terminationGracePeriodSeconds: 30
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        fsGroup: 10001
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: COMPONENT
          image: registry.example.com/APP/COMPONENT:1.4.2
          imagePullPolicy: IfNotPresent
          args:
            - --config=/etc/COMPONENT/settings.yaml
            - --listen=:8080
            - --metrics=:9090
          env:
            - name: LOG_LEVEL
              valueFrom:
                configMapKeyRef:
                  name: APP-COMPONENT
                  key: log-level
            - name: DATABASE_PASSWORD
              valueFrom:
                secretKeyRef:
                  name: APP-database
                  key: password
            - name: POD_NAME
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
          ports:
            - name: http
              containerPort: 8080
            - name: metrics
              containerPort: 9090
          resources:
            requests:
              cpu: 100m
              memory: 128Mi
            limits:
              memory: 256Mi
          readinessProbe:
            httpGet:
              path: /readyz
              port: http
            periodSeconds: 5
          livenessProbe:
            httpGet:
              path: /healthz
              port: http
            initialDelaySeconds: 10
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop:
                - ALL
          volumeMounts:
            - name: settings
              mountPath: /etc/COMPONENT
              readOnly: true
            - name: tmp
              mountPath: /tmp
      volumes:
        - name: settings
          configMap:
            name: APP-COMPONENT
        - name: tmp
          emptyDir: {}
`

// sharedManifests are the objects that the components of an application share.
const sharedManifests = `apiVersion: v1
kind: Secret
metadata:
  name: APP-database
  namespace: NAMESPACE
  labels:
    app.kubernetes.io/part-of: APP
type: Opaque
data:
  username: YXBw
  password: bm90LWEtcmVhbC1wYXNzd29yZA==
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: APP
  namespace: NAMESPACE
  labels:
    app.kubernetes.io/part-of: APP
rules:
  - apiGroups:
      - ""
    resources:
      - configmaps
      - endpoints
    verbs:
      - get
      - list
      - watch
  - apiGroups:
      - coordination.k8s.io
    resources:
      - leases
    verbs:
      - get
      - create
      - update
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: APP
  namespace: NAMESPACE
  labels:
    app.kubernetes.io/part-of: APP
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: APP
subjects:
  - kind: ServiceAccount
    name: APP-worker
    namespace: NAMESPACE
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: APP
  namespace: NAMESPACE
  labels:
    app.kubernetes.io/part-of: APP
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/part-of: APP
  policyTypes:
    - Ingress
  ingress:
    - from:
        - podSelector:
            matchLabels:
              app.kubernetes.io/part-of: APP
      ports:
        - port: http
          protocol: TCP
    - from:
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: monitoring
      ports:
        - port: metrics
          protocol: TCP
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: APP-web
  namespace: NAMESPACE
  labels:
    app.kubernetes.io/name: web
    app.kubernetes.io/part-of: APP
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: APP-web
  minReplicas: 2
  maxReplicas: 6
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: 80
`
