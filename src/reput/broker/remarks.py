"""Texts of remarks that several processors answer."""

#: What RocketMQ adds to some remarks (`FAQUrl.suggestTodo`); its tools look for the text before it.
SEE_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
