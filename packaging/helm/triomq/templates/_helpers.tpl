{{/* The DNS suffix of a headless service. Arguments: root, service. */}}
{{- define "triomq.domain" -}}
{{ .service }}.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end }}

{{/* The addresses of all NameServers, separated by semicolons. */}}
{{- define "triomq.nameServers" -}}
{{- $service := printf "%s-namesrv" .Release.Name -}}
{{- range $number, $_ := until (int .Values.nameServers.replicas) -}}
{{- if $number }};{{ end }}{{ $service }}-{{ $number }}.{{ include "triomq.domain" (dict "root" $ "service" $service) }}:9876
{{- end -}}
{{- end }}

{{/* The configuration of a NameServer. */}}
{{- define "triomq.nameServerConfiguration" -}}
listenPort=9876
{{ include "triomq.configuration" . }}
{{- with .Values.nameServers.configuration }}
{{ trim . }}
{{- end }}
{{- end }}

{{/* Lines that NameServers and brokers share. */}}
{{- define "triomq.configuration" -}}
metricsPort={{ .Values.metrics.port }}
metricsAddress=0.0.0.0
{{- if .Values.tls.existingSecret }}
tls.test.mode.enable=false
tls.server.mode=enforcing
tls.server.keyPath=/etc/triomq/tls/tls.key
tls.server.certPath=/etc/triomq/tls/tls.crt
tls.server.trustCertPath=/etc/triomq/tls/ca.crt
{{- end }}
{{- end }}

{{/* The configuration of a broker. @POD@ and @NUMBER@ are replaced in the pod. Arguments: root, broker, name, role. */}}
{{- define "triomq.brokerConfiguration" -}}
{{- $domain := include "triomq.domain" (dict "root" .root "service" .name) -}}
brokerClusterName={{ .root.Values.clusterName }}
brokerName={{ .broker.name }}
{{- if eq .role "master" }}
brokerId=0
brokerRole=ASYNC_MASTER
{{- else if eq .role "slave" }}
{{- $master := trimSuffix "-slave" .name }}
brokerId=1
brokerRole=SLAVE
haMasterAddress={{ $master }}-0.{{ include "triomq.domain" (dict "root" .root "service" $master) }}:10912
{{- else }}
enableDLegerCommitLog=true
dLegerGroup={{ .broker.name }}
dLegerSelfId=n@NUMBER@
dLegerPeers=
{{- range $number, $_ := until 3 -}}
{{- if $number }};{{ end }}n{{ $number }}-{{ $.name }}-{{ $number }}.{{ $domain }}:40911
{{- end }}
{{- end }}
flushDiskType=ASYNC_FLUSH
listenPort=10911
grpcServerPort=8081
brokerIP1=@POD@.{{ $domain }}
brokerIP2=@POD@.{{ $domain }}
storePathRootDir=/var/lib/triomq/store
{{ include "triomq.configuration" .root }}
{{- if .root.Values.accounts.existingSecret }}
aclEnable=true
{{- end }}
{{- if .root.Values.tls.existingSecret }}
tls.client.authServer=true
tls.client.checkServerName=true
tls.client.trustCertPath=/etc/triomq/tls/ca.crt
tls.client.keyPath=/etc/triomq/tls/tls.key
tls.client.certPath=/etc/triomq/tls/tls.crt
{{- if eq .role "member" }}
tls.dleger.mode=enforcing
tls.dleger.memberNames={{ .root.Values.tls.memberName }}
{{- else }}
tls.ha.mode=enforcing
tls.ha.slaveNames={{ .root.Values.tls.memberName }}
{{- end }}
{{- end }}
{{ (.broker.configuration | default .root.Values.brokerDefaults.configuration) | trim }}
{{- end }}

{{/* A container's rights. */}}
{{- define "triomq.securityContext" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* A StatefulSet with its configuration and its headless service.
     Arguments: root, name, component, budget (the group of pods that a PodDisruptionBudget counts), replicas, command,
     file and configuration (its name and text), ports (name and port of each), settings (storage, storageClass,
     resources), grace (seconds). */}}
{{- define "triomq.set" -}}
{{- $root := .root -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
data:
  {{ .file }}: |
    {{- .configuration | nindent 4 }}
---
# Headless, so that each pod has a name of its own. Brokers and clients connect to pods, never to a random one of them.
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {app.kubernetes.io/name: triomq, app.kubernetes.io/instance: {{ .name }}}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {app.kubernetes.io/name: triomq, app.kubernetes.io/instance: {{ .name }}}
  ports:
    {{- range $port := .ports }}
    - {name: {{ $port.name }}, port: {{ $port.port }}}
    {{- end }}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {app.kubernetes.io/name: triomq, app.kubernetes.io/component: {{ .component }}}
spec:
  serviceName: {{ .name }}
  replicas: {{ .replicas }}
  # Members of a group are ready once a majority runs, so none may wait for another one.
  podManagementPolicy: Parallel
  selector:
    matchLabels: {app.kubernetes.io/name: triomq, app.kubernetes.io/instance: {{ .name }}}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: triomq
        app.kubernetes.io/component: {{ .component }}
        app.kubernetes.io/instance: {{ .name }}
        triomq/group: {{ .budget }}
        triomq/release: {{ $root.Release.Name }}
      annotations:
        checksum/configuration: {{ sha256sum .configuration }}  # a changed ConfigMap restarts the pods, one after the other
        {{- if $root.Values.metrics.annotations }}
        prometheus.io/scrape: "true"
        prometheus.io/port: {{ $root.Values.metrics.port | quote }}
        prometheus.io/path: /metrics
        {{- end }}
    spec:
      terminationGracePeriodSeconds: {{ .grace }}
      enableServiceLinks: false
      automountServiceAccountToken: false
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets: {{ toJson . }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10911
        runAsGroup: 10911
        fsGroup: 10911
        seccompProfile: {type: RuntimeDefault}
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector: {matchLabels: {triomq/group: {{ .budget }}}}
      initContainers:
        # The daemon gets a copy on its volume, which it can change (mqadmin config set). The copy is replaced when the
        # ConfigMap has changed since; until then it keeps what was changed at run time.
        - name: configuration
          image: "{{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}"
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command:
            - sh
            - -ec
            - |
              sed "s/@POD@/$POD_NAME/g; s/@NUMBER@/${POD_NAME##*-}/g" "/configuration/$FILE" >/tmp/given
              mkdir -p /var/lib/triomq/etc
              cd /var/lib/triomq/etc
              if ! cmp -s /tmp/given "$FILE.given"; then
                  cp /tmp/given "$FILE"
                  cp /tmp/given "$FILE.given"
              fi
          env:
            - {name: FILE, value: {{ .file }}}
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
          {{- include "triomq.securityContext" $root | nindent 10 }}
          volumeMounts:
            - {name: data, mountPath: /var/lib/triomq}
            - {name: configuration, mountPath: /configuration}
            - {name: tmp, mountPath: /tmp}
      containers:
        - name: {{ .component }}
          image: "{{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}"
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [{{ .command }}, "-c", "/var/lib/triomq/etc/{{ .file }}"]
          env:
            # Brokers register there; mqadmin in the pod asks them.
            - {name: NAMESRV_ADDR, value: {{ include "triomq.nameServers" $root | quote }}}
            {{- if $root.Values.tls.existingSecret }}
            - {name: MQADMIN_TLS, value: "1"}
            - {name: MQADMIN_TLS_CA, value: /etc/triomq/tls/ca.crt}
            {{- end }}
          ports:
            {{- range $port := .ports }}
            - {name: {{ $port.name }}, containerPort: {{ $port.port }}}
            {{- end }}
          # The pages are there before a recovery begins: meanwhile the daemon is live and not ready.
          startupProbe: {httpGet: {path: /health/live, port: metrics}, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 24}
          livenessProbe: {httpGet: {path: /health/live, port: metrics}, periodSeconds: 20, timeoutSeconds: 10, failureThreshold: 3}
          readinessProbe: {httpGet: {path: /health/ready, port: metrics}, periodSeconds: 10, timeoutSeconds: 10}
          {{- include "triomq.securityContext" $root | nindent 10 }}
          resources: {{ toJson .settings.resources }}
          volumeMounts:
            - {name: data, mountPath: /var/lib/triomq}
            - {name: tmp, mountPath: /tmp}
            {{- if $root.Values.accounts.existingSecret }}
            - {name: accounts, mountPath: /opt/triomq/conf, readOnly: true}
            {{- end }}
            {{- if $root.Values.tls.existingSecret }}
            - {name: tls, mountPath: /etc/triomq/tls, readOnly: true}
            {{- end }}
      volumes:
        - {name: configuration, configMap: {name: {{ .name }}}}
        - {name: tmp, emptyDir: {sizeLimit: 64Mi}}
        {{- if $root.Values.accounts.existingSecret }}
        - {name: accounts, secret: {secretName: {{ $root.Values.accounts.existingSecret }}, defaultMode: 288}}  # 0440
        {{- end }}
        {{- if $root.Values.tls.existingSecret }}
        - {name: tls, secret: {secretName: {{ $root.Values.tls.existingSecret }}, defaultMode: 288}}  # 0440
        {{- end }}
  volumeClaimTemplates:
    - metadata: {name: data}
      spec:
        accessModes: [ReadWriteOnce]
        {{- with .settings.storageClass }}
        storageClassName: {{ . }}
        {{- end }}
        resources: {requests: {storage: {{ .settings.storage }}}}
{{- end }}

{{/* A drained node takes one pod at a time. Arguments: root, name. */}}
{{- define "triomq.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {triomq/group: {{ .name }}}
{{- end }}
