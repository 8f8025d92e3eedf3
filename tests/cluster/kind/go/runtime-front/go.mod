module steadfast/cluster/runtime-front

go 1.24.0
