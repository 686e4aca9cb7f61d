"""A stream of ten digits, one class at a time, and the accuracy after each of them."""

import onebyone

data = onebyone.load("digits")
stream = onebyone.class_incremental(data.train_y, data.num_classes, classes_per_task=1)
learner = onebyone.create("supbyol", data.spec, memory_per_class=20)

for task in stream.tasks:
    for index in task.batches(10):
        learner.observe(data.train_x[index], data.train_y[index])
    seen = learner.observed[data.test_y]  # test samples of the classes seen so far
    right = (learner.predict(data.test_x[seen]) == data.test_y[seen]).float().mean()
    seen = int(learner.observed.sum())
    print(
        f"after class {task.classes[0]}: {100 * float(right):5.1f} % of {seen} classes"
    )
